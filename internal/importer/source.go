package importer

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Source is a file as it was read.
type Source struct {
	Name string // for messages
	Data []byte
}

// Format is what a file holds.
type Format string

// The formats.
const (
	Iptables  Format = "iptables-save"
	IP6tables Format = "ip6tables-save"
	Ipset     Format = "ipset"
	Nft       Format = "nft"
)

// Formats are all of them.
var Formats = []Format{Iptables, IP6tables, Ipset, Nft}

// InputError is an input that cannot be read.
type InputError struct {
	File   string
	Line   int // 0 when it is about the whole
	Msg    string
	Remedy string
}

func (e *InputError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Msg)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Msg)
}

// Hint is what the user can do.
func (e *InputError) Hint() string { return e.Remedy }

// recognize finds out the format of a file by its content. What the user says it is decides between iptables-save and
// ip6tables-save, when nothing in the file does; for the rest it must agree.
func recognize(src Source, claimed Format) (Format, error) {
	found, line, text := sniff(src.Data)
	switch {
	case found == "" && line == 0:
		return "", &InputError{src.Name, 0, "nothing is in it that iptables-save, ip6tables-save, ipset save or nft list ruleset prints",
			"save the rules with one of them"}
	case found == "":
		remedy := "save the rules with iptables-save, ip6tables-save, ipset save or nft list ruleset"
		if what, how := resembles(text); what != "" {
			remedy = fmt.Sprintf("it looks like %s: %s", what, how)
		}
		return "", &InputError{src.Name, line, fmt.Sprintf("%q is not what iptables-save, ip6tables-save, ipset save or nft list ruleset prints",
			shorten(strings.ToValidUTF8(text, "?"))), remedy}
	case found == Iptables:
		found = tablesFamily(src.Data, claimed)
	}
	if (claimed == Nft) != (found == Nft) {
		return "", &InputError{src.Name, line, fmt.Sprintf("it looks like the output of %s, not of %s", saver(found), saver(claimed)),
			fmt.Sprintf("use `floodwall import %s`", found)}
	}
	return found, nil
}

// lookalikes are texts that people take for saved rules, by how a line of them begins or what it contains.
var lookalikes = []struct {
	begins       []string
	what, remedy string
}{
	{[]string{"Chain ", "target ", "num ", "pkts "}, "a listing of iptables -L",
		"it leaves out devices and more; import what iptables-save prints"},
	{[]string{"iptables ", "ip6tables ", "/sbin/iptables", "/usr/sbin/iptables", "sudo iptables", "#!/", "$IPT", "$ipt", "${IPT"},
		"a script that calls iptables", "run it, or run it in a namespace of its own (unshare -n), and import what iptables-save prints then"},
	{[]string{"-P ", "-N ", "-A ", "--append "}, "the output of iptables -S", "import what iptables-save prints: it has all tables"},
	{[]string{"Name: ", "Type: ", "Members:"}, "a listing of ipset list", "import what ipset save prints"},
	{[]string{"Status: active", "Status: inactive", "To "}, "a listing of ufw status", "import what iptables-save and ip6tables-save print"},
	{[]string{"devices:", "default:"}, "a policy of Floodwall", "it needs no import: use `floodwall check`"},
	{[]string{"version https://git-lfs"}, "a pointer of Git LFS", "fetch the file itself"},
	{[]string{"<!DOCTYPE", "<html", "<?xml"}, "a document of markup", "save the rules themselves"},
}

// resembles says what a line seems to be of, and what to do then.
func resembles(line string) (what, remedy string) {
	for _, l := range lookalikes {
		for _, b := range l.begins {
			if strings.HasPrefix(strings.TrimSpace(line), b) {
				return l.what, l.remedy
			}
		}
	}
	return "", ""
}

// saver is the command that prints a format.
func saver(f Format) string {
	switch f {
	case Ipset:
		return "ipset save"
	case Nft:
		return "nft list ruleset"
	}
	return string(f)
}

// sniff tells formats by the first line that says something, and returns that line; the two of iptables are one to it. It
// returns "" when it cannot, and line 0 when no line says anything.
func sniff(data []byte) (f Format, number int, text string) {
	for line := range bytes.Lines(data) {
		number++
		text = strings.TrimSpace(string(line))
		word, rest, _ := strings.Cut(text, " ")
		switch {
		case bytes.IndexByte(line, 0) >= 0:
			return "", number, text
		case strings.HasPrefix(text, "#!"):
			return scripted(data, number, text)
		case word == "" || word[0] == '#':
			continue
		case word[0] == '*' || word[0] == ':' || word == "COMMIT":
			return Iptables, number, text
		case (word == "create" || word == "add") && !slices.Contains(nftObjects, first(rest)):
			return Ipset, number, text
		case word[0] == '{' || slices.Contains(nftWords, word):
			return Nft, number, text
		}
		return "", number, text
	}
	if strings.Contains(string(data), "iptables-save") {
		return Iptables, 0, ""
	}
	return "", 0, ""
}

// scripted tells a script for nft, which is a ruleset, from all others.
func scripted(data []byte, number int, text string) (Format, int, string) {
	if strings.Contains(text, "nft") {
		return Nft, number, text
	}
	return "", number, text
}

var (
	nftObjects = []string{"table", "chain", "rule", "set", "map", "element"}
	nftWords   = []string{"table", "flush", "add", "create", "define", "include", "destroy"}
)

func first(text string) string {
	word, _, _ := strings.Cut(text, " ")
	return word
}

// tablesFamily tells ip6tables-save from iptables-save.
func tablesFamily(data []byte, claimed Format) Format {
	for line := range bytes.Lines(data) {
		text := string(line)
		switch {
		case strings.HasPrefix(text, "# Generated by ip6tables-save"):
			return IP6tables
		case strings.HasPrefix(text, "# Generated by iptables-save"):
			return Iptables
		}
		words := strings.Fields(text)
		for i, w := range words[:max(0, len(words)-1)] {
			if w != "-s" && w != "-d" && w != "-p" {
				continue
			}
			switch next := words[i+1]; {
			case next == "icmp" || w != "-p" && strings.Count(next, ".") >= 3 && !strings.Contains(next, ":"):
				return Iptables
			case next == "ipv6-icmp" || next == "icmpv6" || w != "-p" && strings.Contains(next, ":"):
				return IP6tables
			}
		}
	}
	if claimed == IP6tables {
		return IP6tables
	}
	return Iptables
}
