// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"math"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// thenWords are the values of then.
var thenWords = words[Verdict]{{"pass", Pass}, {"drop", Drop}, {"reject", Reject}, {"truncate", Truncate}}

// then parses the verdict of a rule: the value of the key then.
func then(text string) (Verdict, *flaw) {
	verdict, f := thenWords.parse(text)
	switch text {
	case "observe", "count", "log":
		f.hintf("write observe: true beside the verdict that it would be")
	case "limit", "police", "ratelimit":
		f.hintf("write over: {rate: 1000/s, per: from} beside then: drop")
	case "ban":
		f.hintf("write over: {rate: 1000/s, per: from, ban: 10m} beside then: drop")
	case "slip", "tc":
		f.hintf("write truncate")
	}
	return verdict, f
}

// slip parses the key slip, a number n: one query in n is answered.
func slip(text string) (uint32, *flaw) {
	n, f := number(text, math.MaxUint32)
	if f == nil && n > 0 {
		return uint32(n), nil
	}
	f = want("a number from 1", text)
	if of, ok := oneIn(text); ok {
		return 0, f.hintf("write %d: one in %d is answered", of, of)
	}
	return 0, f.hintf("2 answers one query in two; to answer none write then: drop")
}

// sample parses the key sample, 1/n: one packet in n is delivered to user space. It returns n.
func sample(text string) (uint32, *flaw) {
	if of, ok := oneIn(text); ok && strings.HasPrefix(text, "1/") {
		return of, nil
	}
	f := want("one in so many, as in 1/100", text)
	if of, ok := oneIn(text); ok {
		return 0, f.hintf("write 1/%d", of)
	}
	if n, g := number(text, math.MaxUint32); g == nil && n > 0 {
		return 0, f.hintf("write 1/%d for one packet in %d", n, n)
	}
	if _, isSwitch := switches[text]; isSwitch || text == "0" {
		return 0, f.hintf("for no samples leave the key out")
	}
	return 0, f
}

// samples reports a rule with sample and with observe: true. A rule takes samples of the packets that it decides, and a rule that only observes
// decides none.
func (p place) samples(r *Rule, n *node) {
	if r.Observe && r.Sample != 0 {
		p.errorf(n.Get("sample").Pos, "sample is of what a rule decides, and with observe: true it decides nothing").Hint =
			"remove one of them"
	}
}

// oneIn parses the notations of one in n: 1/100, 1% and 0.01. It returns n.
func oneIn(text string) (uint32, bool) {
	if of, ok := strings.CutPrefix(text, "1/"); ok {
		n, f := number(of, math.MaxUint32)
		return uint32(n), f == nil && n > 0
	}
	share, percent := strings.CutSuffix(text, "%")
	part, err := strconv.ParseFloat(strings.TrimSpace(share), 64)
	if percent {
		part /= 100
	}
	if err != nil || !(percent || strings.Contains(text, ".")) || part <= 0 || part > 1 || 1/part > math.MaxUint32 {
		return 0, false
	}
	return uint32(math.Round(1 / part)), true
}

// yesNo parses true or false.
func yesNo(text string) (bool, *flaw) {
	on, ok := switches[text]
	if !ok {
		f := want("true or false", text)
		if near := wording.Nearest(text, sorted(switches)); near != "" {
			f.hintf("did you mean %q?", near)
		}
		return false, f
	}
	return on, nil
}
