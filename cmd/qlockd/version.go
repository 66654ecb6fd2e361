package main

import (
	"cmp"
	"runtime/debug"
)

// version is set by the linker in releases.
var version = ""

func programVersion() string {
	built := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		built = info.Main.Version
	}
	return cmp.Or(version, built, "(devel)")
}
