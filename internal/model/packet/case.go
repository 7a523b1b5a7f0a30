// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"slices"
	"strings"
)

// Case is one line of a policy's unit tests: a packet, and the expected verdict and reason.
//
//	tcp 10.0.0.1:999 > 192.0.2.1:80 S  drop listed
//
// The reason is the name of a rule, a service or a check, or it is default or not-ip. A name with blanks must be in
// double quotes. A # starts a comment.
type Case struct {
	Blank   bool // the line has no packet: it is empty or only a comment
	Packet  Spec
	Verdict string // pass, drop, reject or truncate
	Reason  string // "" if the line has no reason: any reason is accepted
}

// ParseCase parses a line. Its errors have the same form as those of Parse.
func ParseCase(line string) (c Case, err error) {
	tokens, end, err := tokenize(line)
	if err != nil {
		return Case{}, err
	}
	if len(tokens) == 0 {
		return Case{Blank: true}, nil
	}
	verdict := verdictIndex(tokens)
	if verdict < 0 {
		return Case{}, end.errorf("want the verdict, pass, drop, reject or truncate, after the packet")
	}
	end.column = tokens[verdict].column
	if c.Packet, err = parseTokens(tokens[:verdict], end); err != nil {
		return Case{}, err
	}
	c.Verdict = tokens[verdict].text
	if c.Reason, err = parseReason(tokens[verdict+1:]); err != nil {
		return Case{}, err
	}
	return c, nil
}

var verdictWords = []string{"pass", "drop", "reject", "truncate"}

// verdictIndex returns the index of the first word that is a verdict, or -1. No word of a packet is a verdict. A later word, the reason, may look
// like one.
func verdictIndex(tokens []token) int {
	for i, t := range tokens {
		if slices.Contains(verdictWords, t.text) {
			return i
		}
	}
	return -1
}

// parseReason parses the words after the verdict.
func parseReason(tokens []token) (string, error) {
	switch {
	case len(tokens) == 0:
		return "", nil
	case len(tokens) > 1:
		t := tokens[1]
		return "", t.errorf("%q: want one reason only; a name with blanks stands in double quotes", t.text)
	}
	t := tokens[0]
	reason, err := unquote(t.text)
	if err != nil || strings.TrimSpace(reason) == "" {
		return "", t.errorf("reason %s: want the name of a rule, a service or a check, default, or not-ip", t.text)
	}
	return reason, nil
}
