// Package manpage writes the manual page of a program from its commands and flags, in the language of man(7).
package manpage
