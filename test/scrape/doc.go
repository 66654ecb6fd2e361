// Package scrape reads metrics in tests.
package scrape
