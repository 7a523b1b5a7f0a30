package policy

import (
	"errors"
	"strings"
)

// Domain reads a domain name, with or without the dot at its end, into the form that rules compare: lower case, no dot at
// the end. "." is the root, which is "" then.
func Domain(text string) (string, error) {
	name, f := domain(text)
	if f != nil {
		return "", errors.New("the name " + f.msg)
	}
	return name, nil
}

// domain reads a name as Domain does (RFC 1035, 2.3.1 and 2.3.4, and the underscore, which names of services have).
func domain(text string) (string, *flaw) {
	const mostLabel, mostName = 63, 253
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	if text == "." {
		return "", nil
	}
	if len(name) > mostName {
		return "", want("a domain name of at most 253 characters", text)
	}
	for label := range strings.SplitSeq(name, ".") {
		switch {
		case label == "*":
			return "", want("a domain name", text).hintf("leave *. out: a name stands for all below it, too")
		case label == "":
			return "", want("a domain name, without empty labels", text)
		case len(label) > mostLabel:
			return "", want("a domain name, of labels of at most 63 characters", text)
		case strings.ContainsFunc(label, func(r rune) bool { return r > 0x7e }):
			return "", want("a domain name in ASCII", text).hintf("write it as it is in DNS: xn--…")
		case strings.ContainsFunc(label, func(r rune) bool { return !isNameRune(r) }):
			return "", want("a domain name of letters, digits, - and _", text)
		}
	}
	return name, nil
}

func isNameRune(r rune) bool {
	return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-' || r == '_'
}
