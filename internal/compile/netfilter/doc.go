// Package netfilter has what the code generators for nftables and iptables share: what a check or a protection becomes in
// either, and how many prefixes a limit holds. It writes no text itself.
package netfilter
