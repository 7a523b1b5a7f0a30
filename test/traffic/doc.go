// Package traffic has the tests with real connections beside floods: SYN protection, what legitimate clients get, and
// whether a frame of an adversary reaches a socket that the policy forbids. Sockets are the oracle. Verdicts of
// single packets are not here: internal/compile has those.
//
// A new test begins with inScene of scene_test.go: hosts, a server, and a flood beside it; auto_test.go is an example. Tests of protected
// services begin with syn_scene_test.go. reach.go says how an adversary is judged (reach_scene_test.go).
package traffic
