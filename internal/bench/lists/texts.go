package bench

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// mostStrings is how many strings a policy can have.
const mostStrings = 64

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
