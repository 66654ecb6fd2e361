// Package contexts keeps the clusters that a user works with, each under a name: its endpoints and the files of
// its certificates. qlock writes the file; qlock and client.FromEnv read it.
package contexts
