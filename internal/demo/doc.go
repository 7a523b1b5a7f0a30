// Package demo shows on real packets what Floodwall is for: a web server under a flood, without and with a policy of
// eleven lines. Everything happens in a lab of network namespaces without names; the state of the firewall and the
// files are in file systems that are mounted nowhere. Nothing of it outlives the process, however that ends.
//
// The flood has one CPU, and what arrives at the server is handled on another before all else, as the interrupts of a
// network card are. Clients and server have the rest. On a machine with two CPUs that is what the receiving CPU has
// left, so that under the unfiltered flood the clients suffer from both: most of their packets find the server's queue
// full, and they hardly run.
package demo
