// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"strings"
)

// listing is the parts of `nft list ruleset` that some versions of nft leave out of the JSON output.
type listing struct {
	flags   map[string][]string // of tables
	devices map[string][]string // of base chains, by table and chain
	rules   ruleLines
}

// scanListing reads a listing that has one statement per line.
func scanListing(text string) *listing {
	l := &listing{flags: map[string][]string{}, devices: map[string][]string{}, rules: scanNft(bareText(text))}
	var table, chain string
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case word == "table":
			table, chain = strings.TrimSuffix(rest, " {"), ""
		case word == "chain" && strings.HasSuffix(rest, " {"):
			chain = strings.TrimSuffix(rest, " {")
		case line == "}":
			chain = ""
		case word == "flags" && chain == "" && l.flags[table] == nil && !strings.Contains(rest, "{"):
			l.flags[table] = tableFlags(rest)
		case word == "type" && chain != "":
			var p prepared
			for _, m := range hookOf().FindAllStringSubmatch(line, -1) {
				p.device(m[1] + "," + m[2])
			}
			l.devices[table+" "+chain] = p.devices
		}
	}
	return l
}

// tableFlags returns the flags in a line that only tables have; sets have other flags.
func tableFlags(text string) (flags []string) {
	for f := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		if f == "dormant" || f == "owner" || f == "persist" {
			flags = append(flags, f)
		}
	}
	return flags
}
