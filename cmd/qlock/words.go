package main

import "github.com/quorumlock/quorumlock/cmd/qlock/words"

// The words for people that the verbs share with qlock top, under short names.
var (
	span      = words.Span
	millis    = words.Millis
	micros    = words.Micros
	ago       = words.Ago
	heartbeat = words.Heartbeat
	leaseKind = words.LeaseKind
	liveness  = words.Liveness
	left      = words.Left
	modeOf    = words.Mode
	ttl       = words.TTL
	owner     = words.Owner
	who       = words.Who
	labels    = words.Labels
	nameList  = words.Names
	printable = words.Printable
	count     = words.Count
	dash      = words.Dash
	kindOf    = words.Kind
	wants     = words.Wants
	cached    = words.Cached
	howHeld   = words.HowHeld
	waitLeft  = words.WaitLeft
	role      = words.Role
	eventLine = words.Event
	stepOwner = words.StepOwner
	stepLock  = words.StepLock
)
