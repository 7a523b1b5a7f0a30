// SPDX-License-Identifier: Apache-2.0

package shorthand

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Verb says what happens to the packets.
type Verb string

// The verbs. Any is for a search: it stands for all of them.
const (
	Any    Verb = ""
	Allow  Verb = "allow"
	Deny   Verb = "deny"
	Reject Verb = "reject"
	Limit  Verb = "limit"
)

// Verbs are all verbs that a line can have.
var Verbs = []Verb{Allow, Deny, Reject, Limit}

// Request is a line. Words are those of a policy. "" and nil mean anything.
type Request struct {
	Verb     Verb
	Proto    string   // a protocol; that of ports is in Port
	From, To string   // address, prefix, range, $SET or local
	Port     []string // destination ports, with their protocol
	SPort    []string // source ports, with their protocol
	Device   string   // where the packets come in
	Name     string   // of the entry; "" is one that Entry makes
	For      string   // how long it holds; "" is for ever
	Comment  string   // behind the entry
}

// clause is a word that a value follows.
type clause struct {
	want string // the value, for messages
	set  func(p *parser, value string) error
}

var clauses map[string]clause

func init() { // the functions refer to the map
	clauses = map[string]clause{
		"proto":   {"a protocol, as in proto tcp", (*parser).proto},
		"from":    {"an address, a prefix, a range, a set or any, as in from 203.0.113.0/24", (*parser).from},
		"to":      {"an address, a prefix, a range, a set or any, as in to 192.0.2.1", (*parser).to},
		"port":    {"a port, a range or a list, as in port 80,443,8000-8999", (*parser).port},
		"on":      {"a device, as in on eth0", (*parser).on},
		"name":    {"a name, as in name web", (*parser).name},
		"for":     {"a time, as in for 2h", (*parser).during},
		"comment": {"a text, as in comment 'ours'", (*parser).comment},
	}
}

// parser is the state of Parse.
type parser struct {
	*Request
	ports, sports string          // as written
	source        bool            // the last address was that of the source
	said          map[string]bool // the clauses so far
}

// Parse reads the words of a line behind the verb.
func Parse(verb Verb, words []string) (*Request, error) {
	p := parser{Request: &Request{Verb: verb}, said: map[string]bool{}}
	for i := 0; i < len(words); i++ {
		word := words[i]
		c, known := clauses[word]
		switch {
		case word == "in":
		case known && i+1 == len(words):
			return nil, wording.Errorf("write "+c.want, "%s: the value is missing behind it", word)
		case known:
			i++
			key := p.key(word)
			if p.said[key] {
				return nil, wording.Errorf("say it once", "%s is there twice", word)
			}
			p.said[key] = true
			if err := c.set(&p, words[i]); err != nil {
				return nil, err
			}
		case !p.said["port"] && !p.said["from"] && !p.said["to"]:
			if err := p.bare(word); err != nil {
				return nil, err
			}
		default:
			return nil, p.unknown(word)
		}
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	return p.Request, nil
}

// key returns the name of a clause for the test that it is there once. `port` is one of the source or one of the destination.
func (p *parser) key(word string) string {
	if word == "port" && p.source {
		return "sport"
	}
	return word
}

// noProfiles is the remedy for the name of a program in place of its ports.
const noProfiles = "programs have no profiles here: write the ports, as in tcp/80,443 (`floodwall init -` finds those of what listens)"

// foreign are words of ufw that have no place in a line, with remedies.
var foreign = map[string]string{
	"out": "packets are filtered where they come in, forwarded ones, too: leave `out` out, and name the network behind a device with `to` " +
		"(docs/guides/from-ufw.md)",
	"log":     "`floodwall capture` shows packets of a rule with `sample`, and `floodwall status` counts each rule",
	"log-all": "`floodwall capture` shows packets of a rule with `sample`, and `floodwall status` counts each rule",
	"app":     noProfiles,
	"route":   "a rule holds for forwarded packets, too: leave `route` out",
	"insert":  "--before NAME puts the rule before another one",
	"prepend": "--before NAME puts the rule before another one",
}

// unknown returns the error for a word that is not part of the grammar.
func (p *parser) unknown(word string) error {
	if remedy, ok := foreign[word]; ok {
		return wording.Errorf(remedy, "%s is not a word of this line", word)
	}
	known := clauseWords()
	remedy := "the words are " + strings.Join(known, ", ")
	if near := wording.Nearest(word, known); near != "" {
		remedy = fmt.Sprintf("did you mean %q? %s", near, remedy)
	}
	return wording.Errorf(remedy, "unknown word %s", wording.Quote(word))
}

// bare reads a word without a clause: ports, or the address of the source.
func (p *parser) bare(word string) error {
	if _, ok := foreign[word]; ok {
		return p.unknown(word)
	}
	if isAddress(word) {
		p.said["from"] = true
		return p.from(word)
	}
	if valid("port: "+word) != nil && plain(word) && valid("proto: "+word) == nil && !strings.ContainsAny(word[:1], "0123456789") {
		return wording.Errorf(fmt.Sprintf("write proto %s, and an address or a port", word), "%s is a protocol, and not a port", word)
	}
	if near := wording.Nearest(word, clauseWords()); near != "" && plain(word) {
		if _, err := words("port", word, ""); err != nil {
			return p.unknown(word)
		}
	}
	if proto, port, ok := strings.Cut(word, ":"); ok && plain(word) && valid("proto: "+proto) == nil && strings.Trim(proto, "0123456789") != "" {
		return wording.Errorf(fmt.Sprintf("write %s/%s", proto, port), "%s is not a port", wording.Quote(word))
	}
	if strings.Contains(word, ".") {
		return wording.Errorf("write an address as 203.0.113.7 or 203.0.113.0/24, or a port as tcp/8080", "%s is neither an address nor a port", wording.Quote(word))
	}
	p.said["port"] = true
	p.ports = word
	return nil
}

func clauseWords() []string { return slices.Sorted(maps.Keys(clauses)) }

// isAddress reports whether a word is an address, a prefix, a range of addresses or a set.
func isAddress(word string) bool {
	first, _, _ := strings.Cut(word, "-")
	host, _, _ := strings.Cut(first, "/")
	_, err := netip.ParseAddr(host)
	return err == nil || strings.HasPrefix(word, "$")
}

func (p *parser) proto(value string) error {
	if p.Proto = strings.ToLower(value); p.Proto == "any" || p.Proto == "all" {
		p.Proto = ""
	}
	return nil
}

func (p *parser) from(value string) error {
	p.source = true
	return address(&p.From, "from", value)
}

func (p *parser) to(value string) error {
	p.source = false
	return address(&p.To, "to", value)
}

func address(to *string, key, value string) error {
	if value == "any" {
		return nil
	}
	if !plain(value) || !isAddress(value) && value != "local" {
		return wording.Errorf("write "+clauses[key].want, "%s must be an address, a prefix, a range, $SET, local or any, got %s", key, wording.Quote(value))
	}
	*to = value
	return nil
}

func (p *parser) port(value string) error {
	if p.source {
		p.sports = value
	} else {
		p.ports = value
	}
	return nil
}

func (p *parser) on(value string) error {
	if value != "any" {
		p.Device = value
	}
	return nil
}

func (p *parser) name(value string) error {
	if !plain(value) {
		return wording.Errorf("write "+clauses["name"].want, "name must be made of letters, digits, _, . and -, got %s", wording.Quote(value))
	}
	p.Name = value
	return nil
}

func (p *parser) during(value string) error {
	p.For = value
	return nil
}

// comment takes a text of one line.
func (p *parser) comment(value string) error {
	p.Comment = wording.Printable(strings.Join(strings.Fields(value), " "))
	return nil
}

// plain reports whether a word needs no quotes in YAML, and cannot end a value there. An address that ends with a colon is the exception: Entry
// quotes it.
func plain(word string) bool {
	return word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-:/$") == ""
}
