// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"fmt"
	"strings"
)

// Source is a file and its content.
type Source struct {
	Name string // for messages
	Data []byte
}

// InputError is the error for an input that cannot be read.
type InputError struct {
	File   string
	Line   int // 0 when the error is about the whole file
	Msg    string
	Remedy string
}

func (e *InputError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Msg)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Msg)
}

// Hint returns the remedy.
func (e *InputError) Hint() string { return e.Remedy }

// lookalikes are texts that people mistake for saved rules. Each is recognized by the beginning or a part of a line.
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

// Resembles returns the kind of text from which a line seems to be, and a remedy.
func Resembles(line string) (what, remedy string) {
	for _, l := range lookalikes {
		for _, b := range l.begins {
			if strings.HasPrefix(strings.TrimSpace(line), b) {
				return l.what, l.remedy
			}
		}
	}
	return "", ""
}
