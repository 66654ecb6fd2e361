// Package console tests the web console as people use it: in Chromium, against three nodes as separate processes.
//
// Package browser drives Chromium. The tests need Debian's package chromium, and one of them libnss3-tools: without it they
// are skipped, and with QUORUMLOCK_CHECK=1 they install it.
//
// This is a module of its own, so that the product does not depend on what drives a browser.
package console
