// Package traffic has the tests with real connections beside floods: SYN protection, what legitimate clients get, and
// whether a frame of an adversary reaches a socket that the policy forbids. Sockets are the oracle.
package traffic
