// Package iptables reads the output of iptables-save, ip6tables-save and ipset save into a saved.Ruleset. An option
// that has no equal in a policy becomes an unknown part of its rule's condition. Only a file of another format, or one
// that is cut off, is an error.
//
// Read ReadIpset (ipset.go) and Read (iptables.go) first. A line with a rule is taken apart into tokens (options.go,
// extensions.go). rule.go turns tokens into a rule, with match.go, header.go, conntrack.go, limit.go and recent.go for
// the matches, and target.go for the targets. ipset files must be read before the rules that name their sets.
package iptables
