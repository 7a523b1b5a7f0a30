// Package importer turns the rules that other tools loaded (iptables-save, ip6tables-save, ipset save, nft list
// ruleset) into a policy with the same verdicts for packets that come in from outside, and says of each line that has
// no equal what is lost with it.
package importer
