// SPDX-License-Identifier: Apache-2.0

// Package traffic has models of the traffic to a host: the usual mix of its services, crowds and other unusual honest traffic, and attacks. Input:
// the name of a model and a seed. Output: frames, each with its time. The same seed gives the same frames. The package knows no firewall. Package
// experiment makes honest TCP traffic with real sockets.
//
// Read model.go first: a Model is some streams, and a Player puts their frames in order. host.go is the host that all traffic goes to, honest.go and
// attack.go are the models, replay.go has recorded packets. Send sends a model out of a device of a lab.
//
//	m := traffic.Usual(traffic.Once)
//	sent, err := traffic.Send(ctx, device, m.Play(seed), time.Now(), time.Minute)
package traffic
