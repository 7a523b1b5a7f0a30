// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"bytes"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// nft loads a ruleset text in a new namespace, which lacks devices and other objects of the rules' host. Another process then lists the ruleset.
// Some statements cannot be loaded in such a namespace, and some objects would be gone before they are listed. prepare removes both, and keeps
// every line in its place.

// prepared is the text that nft loads, and the things that were removed from it or found in it.
type prepared struct {
	text       string
	flowtables []declared
	devices    []string   // the devices that ingress and egress chains name
	objects    []declared // those declared in blocks: tables, chains, sets and maps
	removes    bool       // it has commands that remove objects
}

// declared is an object that a text declares.
type declared struct {
	kind, table, name string
	line              int
}

var (
	// Devices that are tested by index (iif) must exist when a ruleset is loaded. Devices that are tested by name (iifname) need not exist. The
	// policy makes no difference between the two.
	byNumber = wording.Regexp(`(^|[^.\w]\s*)\b(iif|oif)(\s+(?:!=\s*|==\s*)?["{])`)
	// The kernel removes a table with an owner when the process that loaded it ends.
	owned = wording.Regexp(`\bflags[ \t]+[a-z]+(?:[ \t]*,[ \t]*[a-z]+)*`)
	// Flowtables need devices that exist.
	flows    = wording.Regexp(`\bflow[ \t]+(?:add|offload)[ \t]+@[\w.-]+`)
	hookOf   = wording.Regexp(`\bhook\s+(?:ingress|egress)\s+(?:device\s+("[^"]+"|[^\s;{}]+)|devices\s*=\s*\{([^}]*)\})`)
	defines  = wording.Regexp(`(?m)^\s*define\s+[\w/.-]+\s*=\s*(?:\{([^}]*)\}|("[^"\n]*"))`)
	removing = wording.Regexp(`(?m)^\s*(?:delete|destroy|reset)\s`)
)

// prepare removes the parts of a text that cannot be loaded or listed.
func prepare(text string) prepared {
	bare := bareText(text)
	p := prepared{removes: removing().MatchString(bare)}
	out := []byte(byNumber().ReplaceAllString(text, "${1}${2}name${3}"))
	bare = bareText(string(out))
	p.blocks(bare, out)
	for _, at := range owned().FindAllStringIndex(bare, -1) {
		withoutOwner(out[at[0]:at[1]])
	}
	for _, at := range flows().FindAllStringIndex(bare, -1) {
		copy(out[at[0]:at[1]], append([]byte("counter"), bytes.Repeat([]byte(" "), at[1]-at[0]-len("counter"))...))
	}
	for _, m := range hookOf().FindAllStringSubmatch(string(out), -1) {
		p.device(m[1] + "," + m[2])
	}
	if p.devices != nil {
		for _, m := range defines().FindAllStringSubmatch(string(out), -1) {
			p.device(m[1] + "," + m[2])
		}
	}
	p.text = string(out)
	return p
}

// device adds the names in a list, with quotes or without.
func (p *prepared) device(list string) {
	const longest, most = 15, 64 // the longest name (kernel IFNAMSIZ), and the largest number of devices
	for name := range strings.SplitSeq(list, ",") {
		name = strings.Trim(strings.TrimSpace(name), `"`)
		if name == "" || len(name) > longest || strings.ContainsAny(name, "$*/ \t\n") || slices.Contains(p.devices, name) || len(p.devices) == most {
			continue
		}
		p.devices = append(p.devices, name)
	}
}

// bareText returns a text whose comments and quoted words are replaced by blanks.
func bareText(text string) string {
	out := []byte(text)
	for i := 0; i < len(out); i++ {
		end := byte(0)
		switch out[i] {
		case '#':
			end = '\n'
		case '"':
			end = '"'
		default:
			continue
		}
		n := bytes.IndexByte(out[i+1:], end)
		if n < 0 {
			n = len(out) - i - 1
		}
		last := min(i+1+n, len(out)-1)
		for j := i; j <= last; j++ {
			if out[j] != '\n' {
				out[j] = ' '
			}
		}
		i = last
	}
	return string(out)
}

// withoutOwner replaces the flags of a table that tie it to its process by blanks. If there are no other flags, it also replaces the word flags.
func withoutOwner(flags []byte) {
	words := strings.FieldsFunc(strings.TrimPrefix(string(flags), "flags"), func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
	kept := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "owner" || w == "persist" })
	if len(kept) == len(words) {
		return
	}
	text := ""
	if len(kept) > 0 {
		text = "flags " + strings.Join(kept, ",")
	}
	copy(flags, text+strings.Repeat(" ", len(flags)-len(text)))
}

// blocks finds the objects that a text declares in blocks. It replaces flowtables by blanks.
func (p *prepared) blocks(bare string, out []byte) {
	var table string
	depth, start, line := 0, 0, 1 // start is the offset of the current statement
	flowtable := -1
	for i := range len(bare) {
		switch bare[i] {
		case '\n':
			line++
			if depth < 2 && strings.TrimSpace(bare[start:i]) == "" || depth == 0 {
				start = i + 1
			}
		case ';':
			start = i + 1
		case '{':
			words := strings.Fields(string(out[start:i]))
			words = slices.DeleteFunc(words, func(w string) bool { return w == "add" || w == "create" })
			switch {
			case depth == 0 && len(words) > 1 && words[0] == "table":
				if table = strings.Join(words[1:], " "); len(words) == 2 {
					table = "ip " + table
				}
				p.objects = append(p.objects, declared{"table", table, "", line})
			case depth == 1 && len(words) == 2 && slices.Contains([]string{"chain", "set", "map", "flowtable"}, words[0]):
				d := declared{words[0], table, strings.Trim(words[1], `"`), line}
				if d.kind == "flowtable" {
					flowtable = start
					p.flowtables = append(p.flowtables, d)
				} else if table != "" {
					p.objects = append(p.objects, d)
				}
			}
			depth, start = depth+1, i+1
		case '}':
			if depth--; depth == 1 && flowtable >= 0 {
				for j := flowtable; j <= i; j++ {
					if out[j] != '\n' {
						out[j] = ' '
					}
				}
				flowtable = -1
			}
			if depth == 0 {
				table = ""
			}
			start = i + 1
		}
	}
}
