// Package traffic has the tests with real connections beside floods: SYN protection, what legitimate clients get, and
// whether a frame of an adversary reaches a socket that the policy forbids. Sockets are the oracle. Verdicts of
// single packets are not here: internal/compile has those.
//
// syn.go says how connections to protected services are tested (syn_scene_test.go), reach.go how an adversary is judged
// (reach_scene_test.go); floods beside a service are in scene_test.go.
package traffic
