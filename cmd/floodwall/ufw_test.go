// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/policy"
)

// TestFromUFW runs each line of the table in the guide for users of ufw, on the policy of that guide. It compares the difference that the command
// prints with the entry in the table. A line that deletes runs behind the line that adds.
func TestFromUFW(t *testing.T) {
	t.Parallel()
	const guide = "docs/guides/from-ufw.md"
	text, err := os.ReadFile(filepath.Join(top, guide))
	if err != nil {
		t.Fatal(err)
	}
	blocks := fences(t, guide)
	first := blocks[slices.IndexFunc(blocks, func(f fence) bool { return f.file == policyFile })].text
	row := regexp.MustCompile("(?m)^\\| (`ufw [^|]*`) \\| (.*?) \\| (.*) \\|$")
	lines := 0
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		entry := regexp.MustCompile("`({.*)`").FindStringSubmatch(m[3])
		if m[2] == "–" {
			if entry != nil && !valid(entry[1]) {
				t.Errorf("%s: the entry is not valid: %s", m[1], entry[1])
			}
			for _, ufw := range ufwLine.FindAllStringSubmatch(m[1], -1) {
				out, err := exec.Command("sh", "-c", "floodwall "+ufw[1]+" --no-apply").CombinedOutput()
				if err == nil || !strings.Contains(string(out), "hint: ") {
					t.Errorf("floodwall %s has no hint: %v\n%s", ufw[1], err, out)
				}
			}
			continue
		}
		if m[2] == "=" {
			m[2] = strings.Replace(m[1], "ufw", "floodwall", 1)
		}
		line := regexp.MustCompile("^`floodwall ([^`]*)`").FindStringSubmatch(m[2])
		if line == nil || strings.Contains(m[2], "by the name") {
			continue
		}
		lines++
		file := filepath.Join(t.TempDir(), policyFile)
		writeFile(t, file, first)
		run := func(line string) string {
			out, err := exec.Command("sh", "-c", "floodwall "+line+" --no-apply --file "+file).CombinedOutput()
			if err != nil {
				t.Errorf("floodwall %s: %v\n%s", line, err, out)
			}
			return string(out)
		}
		if add, deletes := strings.CutPrefix(line[1], "delete "); deletes {
			run(add)
			run(line[1])
			if now, err := os.ReadFile(file); err != nil || string(now) != first {
				t.Errorf("floodwall %s leaves: %v\n%s", line[1], err, now)
			}
			continue
		}
		if out := run(line[1]); entry == nil || !strings.Contains(out, "\n+  - "+entry[1]+"\n") {
			t.Errorf("floodwall %s: the guide has %q\n%s", line[1], entry, out)
		}
	}
	if lines < 20 {
		t.Errorf("only %d lines were found", lines)
	}
}

// ufwLine is a command of ufw in the guide.
var ufwLine = regexp.MustCompile("`ufw ([^`]*)`")

// ufwManual are the commands that ufw(8) of ufw 0.36.2 shows as examples.
var ufwManual = strings.Split(`allow in on eth0 from 192.168.0.0/16
allow out on eth1 to 10.0.0.0/8
route allow in on eth0 out on eth1 to 10.0.0.0/8 from 192.168.0.0/16
limit 2222/tcp comment 'SSH port'
allow 53
allow 25/tcp
allow smtp
allow in http
reject out smtp
reject telnet comment 'telnet is unencrypted'
deny proto tcp to any port 80
deny proto tcp from 10.0.0.0/8 to 192.168.0.1 port 25
deny proto tcp from 2001:db8::/32 to any port 25
deny in on eth0 to 224.0.0.1 proto igmp
allow in on eth0 to 192.168.0.1 proto gre
allow proto tcp from any to any port 80,443,8080:8090 comment 'web app'
route allow in on eth1 out on eth2
route allow in on eth0 out on eth1 to 12.34.45.67 port 80 proto tcp
disable
enable
limit ssh/tcp
reject auth
allow in on eth0 to any port 80 proto tcp
deny 80/tcp
delete deny 80/tcp
delete 3
insert 3 deny to any port 22 from 10.0.0.135 proto tcp
prepend deny from 1.2.3.4
status numbered
allow log 22/tcp
deny 53
allow 80/tcp
allow from 10.0.0.0/8
allow from 172.16.0.0/12
allow from 192.168.0.0/16
deny proto udp from 1.2.3.4 to any port 514
allow proto udp from 1.2.3.5 port 5469 to 1.2.3.4 port 5469
allow proto tcp from any to any port 22
--force enable
app list
app info NAME
app update --add-new NAME
app default allow
show raw
allow 22
allow to 10.0.0.1 proto ipv6
allow to 10.0.0.1 from 10.4.0.0/16 proto ipv6
allow to 10.0.0.1 proto esp
allow to 10.0.0.1 from 10.4.0.0/16 proto esp
allow to 10.0.0.1 proto ah
allow to 10.0.0.1 from 10.4.0.0/16 proto ah
allow to 224.0.0.0/24 from 10.0.0.1 proto vrrp`, "\n")

// TestUFWManual looks for each example of ufw's manual page in the tables of the guide.
func TestUFWManual(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(top, "docs/guides/from-ufw.md"))
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, m := range ufwLine.FindAllStringSubmatch(cells[1], -1) {
				have = append(have, m[1])
			}
		}
	}
	for _, example := range ufwManual {
		if !slices.Contains(have, example) {
			t.Errorf("the guide has no line for: ufw %s", example)
		}
	}
}

// valid reports whether an entry is a service of a policy.
func valid(entry string) bool {
	_, err := policy.Parse("policy.yaml", []byte("devices: [eth0]\nservices:\n  - "+entry+"\n"))
	return err == nil
}
