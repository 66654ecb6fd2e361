package main

import "syscall"

// self is the executable of this program, also after its file was replaced.
const self = "/proc/self/exe"

func ownExecutable() (string, error) { return self, nil }

// dieWithParent lets the kernel kill the command when this program is killed.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
