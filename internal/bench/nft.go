package bench

import "fmt"

// nftHook is where a chain of nft runs.
type nftHook int

const (
	nftIngress nftHook = iota // before anything else that netfilter does
	nftRaw                    // before connection tracking
	nftInput                  // of what is for this host, after all else
)

// script is input for nft: a table with a chain of these rules, and what else stands in the table.
func (h nftHook) script(at *site, rules, more string) string {
	family, hook := "inet", "hook prerouting priority raw"
	switch h {
	case nftIngress:
		family, hook = "netdev", fmt.Sprintf("hook ingress device %q priority 0", at.in.Name)
	case nftInput:
		hook = "hook input priority filter"
	}
	return fmt.Sprintf("table %s bench {\n%schain drops {\ntype filter %s; policy accept;\n%s}\n}\n", family, more, hook, rules)
}
