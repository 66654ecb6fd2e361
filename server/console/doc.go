// Package console serves the web console of a node: HTML, style sheets and JavaScript modules, which are embedded in the
// binary and contain no data of the cluster. In the browser the console uses only the public JSON API of the same port,
// with the identity and the rights of whoever signs in.
//
// The modules in ui run as they are; there is no build step. The libraries in ui/vendor come from the npm registry by
// scripts/console-vendor.sh. The console routes by the fragment of the URL, so the server knows files only.
//
// Files: console.go serves the files; ui/main.js is the entry point of the program in the browser, ui/api.js sends its
// requests, ui/live.js follows the stream of events, ui/text.js and ui/sentences.js word what it shows. The tests of the
// modules that need no browser are in testdata.
package console
