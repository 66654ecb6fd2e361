// Command go drives lock libraries in Go, as package redis describes: it reads steps and prints outcomes.
//
//	go CLIENT ADDRESS
package main
