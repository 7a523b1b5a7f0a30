package saved

import (
	"bytes"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Text of nft is loaded by nft in a namespace that has not what the rules' host has, and is listed by another process than that which loaded it.
// Some of it cannot be loaded so, and some would not be there any more. prepared takes that out, and leaves every line where it is.

// prepared is a text as it is loaded, with what was taken out of it.
type prepared struct {
	text       string
	flowtables []declared
	devices    []string   // which ingress and egress chains name
	objects    []declared // in blocks: tables, chains, sets and maps
	removes    bool       // it has commands that remove objects
}

// declared is an object that a text declares.
type declared struct {
	kind, table, name string
	line              int
}

var (
	// Devices that are tested by number (iif) must exist when a ruleset is loaded; tested by name (iifname) they need not, and the policy knows
	// no difference.
	byNumber = wording.Regexp(`(^|[^.\w]\s*)\b(iif|oif)(\s+(?:!=\s*|==\s*)?["{])`)
	// A table with an owner goes with the process that has loaded it.
	owned = wording.Regexp(`\bflags[ \t]+[a-z]+(?:[ \t]*,[ \t]*[a-z]+)*`)
	// Flowtables are of devices.
	flows    = wording.Regexp(`\bflow[ \t]+(?:add|offload)[ \t]+@[\w.-]+`)
	hookOf   = wording.Regexp(`\bhook\s+(?:ingress|egress)\s+(?:device\s+("[^"]+"|[^\s;{}]+)|devices\s*=\s*\{([^}]*)\})`)
	defines  = wording.Regexp(`(?m)^\s*define\s+[\w/.-]+\s*=\s*(?:\{([^}]*)\}|("[^"\n]*"))`)
	removing = wording.Regexp(`(?m)^\s*(?:delete|destroy|reset)\s`)
)

// prepare takes out of a text what cannot be loaded or listed.
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
	const longest, most = 15, 64 // of a name (kernel IFNAMSIZ), and devices
	for name := range strings.SplitSeq(list, ",") {
		name = strings.Trim(strings.TrimSpace(name), `"`)
		if name == "" || len(name) > longest || strings.ContainsAny(name, "$*/ \t\n") || slices.Contains(p.devices, name) || len(p.devices) == most {
			continue
		}
		p.devices = append(p.devices, name)
	}
}

// bareText is a text whose comments and words in quotes are blank.
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

// withoutOwner makes blank the flags of a table that tie it to its process, and the word flags when there are no others.
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

// blocks finds the objects that a text declares in blocks, and makes flowtables blank.
func (p *prepared) blocks(bare string, out []byte) {
	var table string
	depth, start, line := 0, 0, 1 // start is where the statement at hand begins
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
