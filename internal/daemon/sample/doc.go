// SPDX-License-Identifier: Apache-2.0

// Package sample provides copies of packets: packets that arrive on devices, packets that rules copy, and packets in files of Wireshark and tcpdump.
// The package does not detect attacks; daemon/attack does.
//
// Talkers (talkers.go) finds the most frequent senders and values in a stream of packets: addresses, prefixes and values of fields. Its memory does
// not grow with the stream (spacesaving.go, hierarchy.go). Every count has an error bound.
//
//	c, err := sample.Open(ctx, instance, []string{"web"}) // what the rule `web` copies
//	p, err := c.Read(ctx)
//	talkers.Add(&decoded)                                 // a *sample.Talkers counts them
package sample
