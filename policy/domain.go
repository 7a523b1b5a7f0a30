// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

const nameForm = "a domain name, as in evil.example"

// The limits on the length of names (RFC 1035, 2.3.4). A name of 255 bytes in a message has 253 characters as text.
const (
	mostLabel = 63
	mostName  = 253
)

// nameLetters are the characters that a domain name may contain: those of host names (RFC 1035, 2.3.1), and the underscore for names of services (RFC
// 8552).
const nameLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."

var (
	domainSchema = define("domain", bare(`^(\.|[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?)$`).
			titled("domain name").described("A domain name. It stands for itself and all names below it.").withExamples(`"evil.example"`))

	dnsNameSchema = define("dnsName", anyOf(domainSchema,
		setReference("A set of names that is declared under sets.")).titled("domain name or `$SET`"))
)

// Domain parses a domain name, with or without the dot at its end. It returns the form that rules compare: lower case,
// without the dot at the end. The root "." becomes "".
func Domain(text string) (string, error) {
	name, f := domain(text)
	if f != nil {
		return "", errors.New("the name " + f.msg)
	}
	return name, nil
}

// domain parses a name like Domain, but returns a flaw in place of an error.
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

// nameHint adds a hint to the flaw of a text that is not a domain name.
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
