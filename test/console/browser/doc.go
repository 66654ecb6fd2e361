// Package browser drives Chromium for tests of the console.
//
// A [Page] collects whatever a person would see as a fault in the browser's console: messages at the level error,
// exceptions that nothing caught, and violations of the content security policy. They fail the test at its end.
//
// Conditions are JavaScript expressions, which are evaluated until they hold. The content security policy of a page does
// not apply to them.
package browser
