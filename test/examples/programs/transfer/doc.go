// Command transfer holds the locks of two accounts at once.
package main
