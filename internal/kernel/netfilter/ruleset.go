// This file has what a policy puts into netfilter, a ruleset of nftables or of iptables and ipset, and the tool that
// loads it there.

package netfilter
