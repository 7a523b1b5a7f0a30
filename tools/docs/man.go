// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// manual is the manual page floodwall-policy(5), in Markdown for md2man. It has the keys of the reference page, each with its form, default, example,
// targets and meaning. The tables of stages are only in the reference page: a terminal is too narrow for them.
type manual struct {
	strings.Builder
}

func (m *manual) line(format string, args ...any) { fmt.Fprintf(m, format+"\n", args...) }

// manHead is the part of the manual page before its keys.
const manHead = `%% "FLOODWALL-POLICY" "5" "" "Floodwall" "File formats"

# NAME
floodwall-policy - the policy of Floodwall

# DESCRIPTION
A policy is a YAML file. **floodwall check** reports every mistake in it with line, column and remedy, and **floodwall apply** puts it in force.

A packet meets the parts of a policy in this order: **checks** drop broken packets. **rules**: the first rule that matches decides.
**services**: a packet to a port of a service passes, if it comes from an address in the service's **from**. **default** decides everything
else. Frames that are not IP, such as ARP, pass.

All keys of a rule must match. A list of values matches when one of them does. **not** holds keys of which none may match.

… after a type: one value, or a list of them. *Targets* names the targets that have the key, where not all of xdp, nftables and iptables have it.
`

// manFoot is the part of the manual page after its keys.
const manFoot = `
# EXAMPLE
` + "```" + `
devices: [eth0]
default: drop
checks: strict
sets:
  office: [203.0.113.0/24, 2001:db8:1::/48]
  bans: {dynamic: true, max: 100000, timeout: 1h}
rules:
  - {name: banned, from: $bans, then: drop}
services:
  - {name: web, port: [tcp/80, tcp/443], syn: protect}
  - {name: ssh, port: tcp/22, from: $office}
` + "```" + `

# SEE ALSO
**floodwall**(8), **floodwall-check**(8), **floodwall-apply**(8), **floodwall-schema**(8), and docs/policy.md beside the guides in
/usr/share/doc/floodwall, which has the stage of each key on each target.
`

// section writes the keys of a section. The parameter have contains the targets of each key.
func (m *manual) section(title, intro string, keys []key, have []string) {
	m.line("\n# %s", strings.ToUpper(title))
	if intro != "" {
		m.line("%s\n", plainLinks(intro))
	}
	for i, k := range keys {
		m.entry("**"+k.name+"**"+map[bool]string{true: " (required)"}[k.required], k.typ, k.doc, k.def, k.examples, have[i])
	}
}

// entry writes a term and its description.
func (m *manual) entry(term, typ, doc, def string, examples []any, targets string) {
	text := []string{plainLinks(doc)}
	if def != "" {
		text = append(text, "*Default*: "+def+".")
	}
	if len(examples) > 0 {
		text = append(text, "*Example*: "+code(examples[0])+".")
	}
	if targets != "" && targets != everyTarget {
		text = append(text, "*Targets*: "+targets+".")
	}
	if typ != "" {
		term += ": " + typ
	}
	m.line("%s\n:   %s\n", term, strings.Join(text, " "))
}

// links matches links of Markdown.
var links = wording.Regexp(`\[([^]]+)\]\(([^)#]+)(#[^)]*)?\)`)

// plainLinks replaces links by the names of their files, because a terminal cannot follow links.
func plainLinks(text string) string { return links().ReplaceAllString(text, "$1 (docs/$2)") }

// checks writes the section of the checks.
func (m *manual) checks() {
	m.line("\n# CHECKS\nThe keys of `checks`: **profile**, which is `off`, `standard` or `strict` and which the others change, and the checks, each `on`, `off` or")
	m.line("`observe`, which counts what the check would drop.\n")
	for c := range packet.NumChecks {
		m.entry("**"+c.String()+"**", "profile "+cmp.Or(profiles[c.Info().Profile], "none"), c.Info().Doc, "", nil, "")
	}
}

// roff returns the page in roff.
func (m *manual) roff() string { return string(md2man.Render([]byte(m.String()))) }
