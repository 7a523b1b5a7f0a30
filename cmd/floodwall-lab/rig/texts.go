package rig

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// MostStrings is the largest number of strings of a policy.
const MostStrings = 64

// Texts returns n texts to search for, none of which is in any packet of the bench. The first is the article's text. The others are random words
// without common parts that an algorithm could use.
func Texts(n int) []string {
	words := []string{"evil.example"}
	r := rand.New(rand.NewPCG(Seed, 64))
	for len(words) < n {
		words = append(words, RandomText(r, 6+r.IntN(11))+".example")
	}
	return words[:n]
}

// RandomText returns n random lowercase letters.
func RandomText(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + r.IntN(26))
	}
	return string(b)
}

// StringRules returns rules of iptables that drop packets to port 53 with any of these texts.
func StringRules(algo string, texts []string) string {
	var b strings.Builder
	for _, text := range texts {
		fmt.Fprintf(&b, "-A PREROUTING -p udp --dport 53 -m string --algo %s --string %s -j DROP\n", algo, text)
	}
	return b.String()
}

// StringPolicy is like StringRules, but returns a rule of a policy.
func StringPolicy(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = strconv.Quote(text)
	}
	return "  - {name: text, proto: udp, port: 53, payload: {contains: [" + strings.Join(quoted, ", ") + "]}, then: drop}\n"
}
