// SPDX-License-Identifier: Apache-2.0

package shorthand

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
)

// finish gives the ports their protocol, and checks all words.
func (p *parser) finish() (err error) {
	if p.Proto != "" && !plain(p.Proto) {
		return wording.Errorf("write "+clauses["proto"].want, "proto must be the name or the number of a protocol, got %s", wording.Quote(p.Proto))
	}
	if p.Port, err = words("port", p.ports, p.Proto); err != nil {
		return err
	}
	if p.SPort, err = words("sport", p.sports, p.Proto); err != nil {
		return err
	}
	if p.Verb == Limit { // a port without a protocol is that of TCP, too
		for _, list := range [][]string{p.Port, p.SPort} {
			for i, word := range list {
				if !strings.Contains(word, "/") {
					list[i] = "tcp/" + word
				}
			}
		}
	}
	if p.Port != nil || p.SPort != nil {
		p.Proto = "" // the ports say it
	} else if p.From == "" && p.To == "" && p.Proto == "" {
		return wording.Errorf("name a port or an address, as in tcp/8080, or from 203.0.113.0/24", "this would mean all packets")
	}
	return p.check()
}

// words splits ports, and writes each as a policy has it: 25/tcp is tcp/25, and 8000:8999 is 8000-8999.
func words(key, text, proto string) (list []string, err error) {
	if text == "" {
		return nil, nil
	}
	ports := text
	if before, after, ok := strings.Cut(text, "/"); ok {
		named := before
		ports = after
		if strings.Contains(" tcp udp ", " "+after+" ") || strings.Trim(before, "0123456789,:-") == "" {
			named, ports = after, before
		}
		if proto != "" && proto != named {
			return nil, wording.Errorf("name one protocol", "%s %s is not of %s", key, wording.Quote(text), proto)
		}
		proto = named
	}
	for word := range strings.SplitSeq(ports, ",") {
		word = strings.ReplaceAll(word, ":", "-")
		if proto != "" {
			word = proto + "/" + word
		}
		if !plain(word) {
			return nil, wording.Errorf("write "+clauses["port"].want, "%s must be a port, a range or a list of them, got %s", key, wording.Quote(text))
		}
		found, err := portOf(key, word)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

// portOf returns the policy's words for a port. It looks for names that the policy does not know in /etc/services.
func portOf(key, word string) ([]string, error) {
	err := valid(key + ": " + word)
	if err == nil {
		return []string{word}, nil
	}
	proto, name, ok := strings.Cut(word, "/")
	protos := []string{proto}
	if !ok {
		protos, name = []string{"tcp", "udp"}, word
	}
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		return nil, err
	}
	var list []string
	for _, proto := range protos {
		if n, failed := net.LookupPort(proto, name); failed == nil {
			list = append(list, fmt.Sprintf("%s/%d", proto, n))
		}
	}
	if list == nil {
		if wrong := new(wording.Error); errors.As(err, &wrong) && !strings.Contains(wrong.Hint, "did you mean") {
			wrong.Hint = noProfiles
		}
		return nil, err
	}
	return list, nil
}

// valid returns the error of a rule with a key, as a mistake in the line.
func valid(keys string) error {
	_, err := policy.ParseRule("{name: it, " + keys + ", then: pass}")
	if mistakes, ok := err.(policy.Errors); ok {
		return hinted(mistakes[0])
	}
	return err
}

// hinted returns a mistake of a rule that was made from a line as a mistake of the line.
func hinted(e *policy.Error) error {
	return wording.Errorf(e.Hint, "%s", strings.TrimPrefix(e.Msg, `rule "it": `))
}

// check reports mistakes in the words together, such as a port of a protocol without ports.
func (p *parser) check() error {
	keys := p.match()
	if p.Verb == Limit {
		if slices.ContainsFunc(slices.Concat(p.Port, p.SPort, []string{p.Proto}), func(w string) bool { return strings.HasPrefix(w, "udp") }) {
			return wording.Errorf("give the service `udp: protect`, or write a rule with `over` (docs/policy.md)",
				"limit counts connections of TCP, and udp has none")
		}
		keys = append(keys, limitKeys...)
	}
	var known []string // without sets, which only the policy knows
	for _, k := range keys {
		if !strings.Contains(k, "$") {
			known = append(known, k)
		}
	}
	if known == nil {
		return nil
	}
	return valid(strings.Join(known, ", "))
}
