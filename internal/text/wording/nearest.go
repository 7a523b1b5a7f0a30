// SPDX-License-Identifier: Apache-2.0

package wording

import "strings"

// synonyms maps words of other firewalls to Floodwall's words, if their spelling differs so much that distance does not find them.
var synonyms = map[string]string{
	"accept": "pass", "allow": "pass", "permit": "pass", "return": "pass",
	"deny": "drop", "block": "drop", "discard": "drop", "blackhole": "drop",
	"action": "then", "verdict": "then", "target": "then", "do": "then", "jump": "then",
	"src": "from", "source": "from", "saddr": "from", "srcip": "from",
	"dst": "to", "dest": "to", "destination": "to", "daddr": "to", "dstip": "to",
	"dport": "port", "service": "port", "source-port": "sport", "src-port": "sport",
	"protocol": "proto", "l4proto": "proto", "interface": "devices", "interfaces": "devices", "iface": "devices",
	"nic": "devices", "policy": "default", "filter": "rules", "lists": "sets", "ipset": "sets",
	"ipv6-icmp": "icmpv6", "icmp6": "icmpv6", "ip6": "ipv6", "inet6": "ipv6", "inet": "ipv4", "ip": "ipv4",
	"4": "ipv4", "6": "ipv6", "v4": "ipv4", "v6": "ipv6", "untagged": "none",
	"ping": "echo-request", "pong": "echo-reply", "all": "strict", "none": "off",
	"path": "file", "hoplimit": "ttl", "len": "length", "size": "length", "max-size": "max", "maxelem": "max",
	"yes": "true", "on": "true", "no": "false", "off": "false", "last": "later", "echo": "echo-request",
	"fragmentation-needed": "icmp/3/4", "frag-needed": "icmp/3/4",
	"tcpmss": "mss", "maxseg": "mss", "expire": "timeout", "ttl": "timeout", "tos": "dscp",
	"refuse": "reject", "reset": "reject", "tcp-reset": "reject", "ct": "state", "ctstate": "state", "est": "established",
	"limit": "over", "limits": "over", "ratelimit": "over", "rate-limit": "over", "hashlimit": "over", "connlimit": "over",
	"by": "per", "mask": "per", "string": "contains", "content": "contains", "pattern": "contains", "text": "contains",
	"depth": "within", "window": "within", "ignorecase": "nocase", "case-insensitive": "nocase", "value": "bytes",
	"qname": "name", "domain": "name", "names": "name", "domains": "names", "qtype": "type", "types": "type",
	"monitor": "observe", "dry-run": "observe", "log": "sample", "cookie": "secret", "duration": "for", "time": "for",
	"notrack": "untracked", "conntrack": "track", "lo": "loopback", "localhost": "loopback",
}

// Nearest returns the word in known that text probably means, or "" if there is none. Up to a third of the letters may be wrong.
func Nearest(text string, known []string) string {
	text = strings.ToLower(text)
	best, least := "", max(1, len([]rune(text))/3)+1
	for _, k := range known {
		if synonyms[text] == k {
			return k
		}
		if d := distance(text, strings.ToLower(k), least); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance returns the number of edits that turn a into b, or limit if the number is at least limit. An edit inserts, removes or changes a letter, or
// swaps it with its neighbor (F. J. Damerau, 1964; each place is edited once).
func distance(a, b string, limit int) int {
	s, t := []rune(a), []rune(b)
	if len(s)-len(t) >= limit || len(t)-len(s) >= limit {
		return limit
	}
	d := make([][]int, len(s)+1)
	for i := range d {
		d[i] = make([]int, len(t)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(s); i++ {
		for j := 1; j <= len(t); j++ {
			change := d[i-1][j-1]
			if s[i-1] != t[j-1] {
				change++
			}
			d[i][j] = min(change, d[i-1][j]+1, d[i][j-1]+1)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return min(d[len(s)][len(t)], limit)
}
