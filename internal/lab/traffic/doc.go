// Package traffic has models of what comes to a host: the usual mix of its services, crowds and other honest traffic that is unusual, and
// attacks. In: the name of a model and a seed. Out: frames, each with the time that it is due. The same seed gives the same frames.
// It knows no firewall. What honest clients do over TCP is left to real sockets, in package experiment.
//
// Read model.go first: a Model is some streams, and a Player puts their frames in order. host.go is the host that all is for, honest.go and
// attack.go are the models, replay.go is of recorded packets. Send sends a model out of a device of a lab.
//
//	m := traffic.Usual(traffic.Once)
//	sent, err := traffic.Send(ctx, device, m.Play(seed), time.Now(), time.Minute)
package traffic
