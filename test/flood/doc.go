// Package flood has the tests of what gets past a policy to the host's own stack and sockets, and of what legitimate
// clients are left with meanwhile: forged packets, floods through the rules that `default: drop` has of its own, and bans that
// forged sources bring about. Packets go through the real kernel, on every target.
package flood
