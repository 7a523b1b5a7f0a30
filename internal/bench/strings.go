package bench

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// What Floodwall must reach on XDP: times the rate of iptables with one string (bm), the packet dropped after it.
const (
	leastString  = 3 // with one string
	leastStrings = 2 // with 64
)

// mostStrings is how many strings a policy can have.
const mostStrings = 64

// nftSearches is why there is no row for nft.
const nftSearches = "nft has no match for text anywhere"

// searched is n texts to search for, none of which is in any packet of the bench. The first is that of the
// article; the others are random words, so that they share nothing that would make them one.
func searched(n int) []string {
	words := []string{"evil.example"}
	r := rand.New(rand.NewPCG(seed, 64))
	for len(words) < n {
		words = append(words, randomText(r, 6+r.IntN(11))+".example")
	}
	return words[:n]
}

// randomText is small letters.
func randomText(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + r.IntN(26))
	}
	return string(b)
}

// stringRules has iptables drop packets to port 53 with any of these texts.
func stringRules(algo string, texts []string) string {
	var b strings.Builder
	for _, text := range texts {
		fmt.Fprintf(&b, "-A PREROUTING -p udp --dport 53 -m string --algo %s --string %s -j DROP\n", algo, text)
	}
	return b.String()
}

// stringPolicy is the same as a rule of a policy.
func stringPolicy(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = strconv.Quote(text)
	}
	return "  - {name: text, proto: udp, port: 53, payload: {contains: [" + strings.Join(quoted, ", ") + "]}, then: drop}\n"
}

// stringCases are the article's two, and one with more strings.
func stringCases() []costCase {
	one := func(algo string, article articleRow) costCase {
		return costCase{
			name: "string/" + algo, label: "drop, after a string match (" + algo + ")", article: &article,
			install: raw(stringRules(algo, searched(1)) + "-A PREROUTING " + dropRule),
			lacks:   "it has one way to search: see string match (bm)",
		}
	}
	policy := func(n int) func() (string, func(), error) {
		return text(costPolicy + "rules:\n" + stringPolicy(searched(n)) + dropPolicy)
	}
	bm, many := one("bm", articleRow{255, "10%"}), one("bm", articleRow{})
	bm.own, bm.policy, bm.times = "drop, after a string match", policy(1), leastString
	many.name, many.label, many.article = "string/n=64", "drop, after 64 string matches", nil
	many.install = raw(stringRules("bm", searched(mostStrings)) + "-A PREROUTING " + dropRule)
	many.policy, many.times = policy(mostStrings), leastStrings
	for _, c := range []*costCase{&bm, &many} {
		c.cannot = map[string]string{"nftables": nftSearches}
	}
	return []costCase{bm, one("kmp", articleRow{235, "17%"}), many}
}
