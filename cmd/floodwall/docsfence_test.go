// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fence is a block between ``` in a document. The word after the language is the name of the file that a reader writes: ```yaml policy.yaml. In a
// block of the language console, a line with a prompt is a command. Lines that start with > continue the command. The lines below the command are its
// output. The prompt laptop$ is that of the client, and any other prompt is that of the server. A line with only ... matches any number of lines, and
// ... within a line matches any text. Times, sizes and numbers of packets are not compared, because they differ from run to run. A command that fails
// has a comment: # exits with 1.
type fence struct {
	at         string // document and line
	lang, file string
	text       string
}

// fences reads the blocks of a document.
func fences(t *testing.T, name string) (list []fence) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, name))
	if err != nil {
		t.Fatal(err)
	}
	var open *fence
	for i, line := range strings.SplitAfter(string(text), "\n") {
		info, mark := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "```")
		switch {
		case mark && open == nil:
			lang, file, _ := strings.Cut(info, " ")
			open = &fence{at: fmt.Sprintf("%s:%d", name, i+1), lang: lang, file: file}
		case mark:
			list, open = append(list, *open), nil
		case open != nil:
			open.text += line
		}
	}
	if open != nil {
		t.Fatalf("%s: the block does not end", open.at)
	}
	return list
}

// console returns the blocks that contain commands.
func console(blocks []fence) (list []fence) {
	for _, f := range blocks {
		if f.lang == "console" {
			list = append(list, f)
		}
	}
	return list
}

// docCommand is a command of a document, with its output.
type docCommand struct {
	at      string
	prompt  string // the text before $
	command string
	want    []string
	fails   bool
}

var (
	promptLine = regexp.MustCompile(`^([a-z]*)\$ (.*)$`)
	comment    = regexp.MustCompile(`\s+# .*$`)
)

const failure = "# exits with 1"

// commands returns the commands of a console block.
func (f fence) commands(t *testing.T) (list []docCommand) {
	t.Helper()
	for line := range strings.Lines(f.text) {
		line = strings.TrimSuffix(line, "\n")
		m := promptLine.FindStringSubmatch(line)
		switch {
		case m != nil:
			c := docCommand{at: f.at, prompt: m[1], command: m[2], fails: strings.HasSuffix(m[2], failure)}
			c.command = comment.ReplaceAllString(c.command, "")
			list = append(list, c)
		case len(list) == 0:
			t.Fatalf("%s: the block begins with no command", f.at)
		case strings.HasPrefix(line, "> "):
			list[len(list)-1].command += "\n" + line[2:]
		default:
			list[len(list)-1].want = append(list[len(list)-1].want, line)
		}
	}
	return list
}

// differs describes the difference between the output of a command and the document. It returns "" if they are equal, and if the document has no
// output for the command.
func (c docCommand) differs(got string) string {
	if len(c.want) == 0 {
		return ""
	}
	var pattern strings.Builder
	pattern.WriteString("^")
	for _, line := range c.want {
		if line == "..." {
			pattern.WriteString(`(.*\n)*`)
			continue
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(normal(line)), `\.\.\.`, `.*`) + `\n`)
	}
	if regexp.MustCompile(pattern.String() + "$").MatchString(normal(got) + "\n") {
		return ""
	}
	return "got:\n" + got + "\nthe document has:\n" + strings.Join(c.want, "\n")
}

// changing are replacements for the parts of output that differ from run to run.
var changing = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, \d+s ago`), "TIME"},
	{regexp.MustCompile(`\b\d+(\.\d+)? (ns|µs|ms|s|B|kB|MB|MHz|Mpps)\b`), "N"},
	{regexp.MustCompile(`\b(\d+[dhms])+\b`), "N"},
	{regexp.MustCompile(`\b[\d,]+ +N\b`), "N"},                                                                                                         // packets before bytes
	{regexp.MustCompile(`(?m)^floodwall: note: (device \S+ loses the packets that XDP|XDP in native mode on veth) .*\n`), ""},                          // of the test's cable
	{regexp.MustCompile(`(?m)^floodwall: note: (systemd does not run here|this is not the host's network|\S+ can be changed by users other).*\n`), ""}, // of the test's namespaces
	{regexp.MustCompile(`(?m)^floodwall: (note|warning): nobody takes samples of the traffic, nor looks for attacks while .*\n`), ""},                  // systemd starts no daemon in a test
	{regexp.MustCompile(` {2,}`), "  "},
	{regexp.MustCompile(`(?m) +$`), ""},
}

// normal replaces the parts of text that differ from run to run.
func normal(text string) string {
	text = strings.TrimRight(text, "\n")
	for _, c := range changing {
		text = c.pattern.ReplaceAllString(text, c.by)
	}
	return text
}
