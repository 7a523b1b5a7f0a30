// Package sample has copies of packets: those that come to devices, those that rules copy, and those in files that
// Wireshark and tcpdump read and write. It knows no attack: that is daemon/attack.
//
// Talkers (talkers.go) finds who sends most: frequent addresses, prefixes and values of fields in a stream of packets, in
// memory that does not grow with the stream (spacesaving.go, hierarchy.go). Every count has a bound of its error.
//
//	c, err := sample.Open(ctx, instance, []string{"web"}) // what the rule `web` copies
//	p, err := c.Read(ctx)
//	talkers.Add(&decoded)                                 // a *sample.Talkers counts them
package sample
