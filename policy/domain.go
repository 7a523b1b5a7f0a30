package policy

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

const nameForm = "a domain name, as in evil.example"

// The limits of names (RFC 1035, 2.3.4); 255 bytes in a message are 253 characters of text.
const (
	mostLabel = 63
	mostName  = 253
)

// nameLetters are the letters of names: those of hosts (RFC 1035, 2.3.1), and the underscore of services (RFC 8552).
const nameLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."

// Domain reads a domain name, with or without the dot at its end, into the form that rules compare: lower case, no dot at
// the end. "." is the root, which is "" then.
func Domain(text string) (string, error) {
	name, f := domain(text)
	if f != nil {
		return "", errors.New("the name " + f.msg)
	}
	return name, nil
}

// domain reads a name as Domain does.
func domain(text string) (string, *flaw) {
	if text == "." {
		return "", nil
	}
	if strings.Trim(text, nameLetters) != "" {
		return "", nameHint(want(nameForm, text), text)
	}
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	for label := range strings.SplitSeq(name, ".") {
		switch {
		case label == "":
			return "", nameHint(want(nameForm, text), text)
		case len(label) > mostLabel:
			return "", want(fmt.Sprintf("a domain name with at most %d characters between dots", mostLabel), text)
		}
	}
	if len(name) > mostName {
		return "", want(fmt.Sprintf("a domain name of at most %d characters", mostName), text)
	}
	return name, nil
}

// isName reports whether text is a domain name.
func isName(text string) bool {
	_, f := domain(text)
	return f == nil
}

// nameHint explains a text that is no domain name.
func nameHint(f *flaw, text string) *flaw {
	bare := strings.TrimLeft(text, "*.")
	switch {
	case bare != text && bare != "" && isName(bare):
		return f.hintf("write %s: a name stands for all below it, too", bare)
	case text == "*":
		return f.hintf("leave name out, and every name matches")
	case text == "":
		return f.hintf("the root, above all names, is a single dot")
	case strings.Contains(text, "://"):
		return f.hintf("write the host's name only")
	case strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII }):
		return f.hintf("write it in its ASCII form, which begins with xn-- (punycode)")
	case strings.Contains(text, "*"):
		return f.hintf("patterns are not supported: a name stands for itself and all below it")
	case strings.Contains(text, ".."):
		return f.hintf("there is nothing between two dots")
	}
	return f
}
