package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// families are nft's words for enum nf_proto families.
var families = map[uint8]string{
	unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6",
	unix.NFPROTO_ARP: "arp", unix.NFPROTO_NETDEV: "netdev", unix.NFPROTO_BRIDGE: "bridge",
}

// readNftables reads the chains of nftables and how many rules each has, from the kernel itself: the tool prints all of
// every rule and set, which takes seconds where rules are many.
func readNftables(ctx context.Context, all chains) error {
	each := func(kind uint16, fn func(place, []byte)) error {
		var bad error
		err := dump(ctx, unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|kind, netfilterHead(unix.NFPROTO_UNSPEC),
			func(message []byte) bool {
				family, rest, err := afterHead(message)
				if err != nil {
					bad = err
					return false
				}
				// Table is the first attribute of rules and of chains alike.
				fn(place{nftables, families[family], name(attribute(rest, unix.NFTA_RULE_TABLE))}, rest)
				return true
			})
		return errors.Join(err, bad)
	}
	if err := each(unix.NFT_MSG_GETCHAIN, all.addNftChain); err != nil {
		return nftError("chains", err)
	}
	if err := each(unix.NFT_MSG_GETRULE, all.addNftRule); err != nil {
		return nftError("rules", err)
	}
	return nil
}

// nftError is nil for a kernel without nftables.
func nftError(what string, err error) error {
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil
	}
	return fmt.Errorf("reading the %s of nftables: %w", what, err)
}

func (c chains) addNftChain(p place, attrs []byte) {
	chain := c.at(p, name(attribute(attrs, unix.NFTA_CHAIN_NAME)))
	chain.nat = name(attribute(attrs, unix.NFTA_CHAIN_TYPE)) == "nat"
	chain.uses = int(bigEndian(attribute(attrs, unix.NFTA_CHAIN_USE)))
	if at := attribute(attrs, unix.NFTA_CHAIN_HOOK); at != nil {
		chain.hook = hook(bigEndian(attribute(at, unix.NFTA_HOOK_HOOKNUM)))
		chain.priority = int(int32(bigEndian(attribute(at, unix.NFTA_HOOK_PRIORITY))))
		if p.family == "netdev" {
			chain.hook += ingress // netdev numbers ingress 0 and egress 1
		}
	}
}

func (c chains) addNftRule(p place, attrs []byte) {
	chain := c.at(p, name(attribute(attrs, unix.NFTA_RULE_CHAIN)))
	chain.rules++
	conditional := false
	for _, expression := range attributes(attribute(attrs, unix.NFTA_RULE_EXPRESSIONS)) {
		kind := name(attribute(expression, unix.NFTA_EXPR_NAME))
		if kind == "immediate" {
			if to := jumpTarget(attribute(expression, unix.NFTA_EXPR_DATA)); to != "" {
				chain.jumps = append(chain.jumps, jump{to, conditional})
			}
		}
		conditional = conditional || decides(kind)
	}
}

// decides reports whether an nft expression may end its rule.
func decides(expression string) bool {
	switch expression {
	case "cmp", "range", "lookup", "match", "limit", "quota", "connlimit", "fib", "dynset":
		return true
	}
	return strings.HasPrefix(expression, "socket")
}

// jumpTarget is the chain that an immediate verdict leads to, "" for any other value.
func jumpTarget(data []byte) string {
	verdict := attribute(attribute(data, unix.NFTA_IMMEDIATE_DATA), unix.NFTA_DATA_VERDICT)
	switch int32(bigEndian(attribute(verdict, unix.NFTA_VERDICT_CODE))) {
	case unix.NFT_JUMP, unix.NFT_GOTO:
		return name(attribute(verdict, unix.NFTA_VERDICT_CHAIN))
	}
	return ""
}
