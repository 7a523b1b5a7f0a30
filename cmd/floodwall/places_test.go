// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// public are the hosts on the Internet to which documents and packages send people.
var public = []string{"www.rfc-editor.org", "www.wireguard.com", "developer.valvesoftware.com", "github.com", "www.debian.org", "google.github.io",
	"slsa.dev"}

// TestPlaces looks at the addresses in documents and packages. Each must be a known public one, or be reserved for examples in a way that nobody takes
// it for a real one: an address of RFC 5737, loopback, a name in .example, or the host of a unix socket.
func TestPlaces(t *testing.T) {
	t.Parallel()
	address := regexp.MustCompile("https?://[^\\s\"'`)>\\]]+|git clone [^\\s`]+")
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "packaging/*", "packaging/*/*", "contrib/*", "contrib/*/*", ".well-known/*"} {
		found, err := filepath.Glob(filepath.Join(top, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	seen := 0
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.IsDir() {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range address.FindAllString(string(text), -1) {
			seen++
			if !leads(at) {
				t.Errorf("%s sends people to %s", file, at)
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d addresses were found", seen)
	}
}

// leads reports whether an address is public, or plainly an example.
func leads(at string) bool {
	if rest, clones := strings.CutPrefix(at, "git clone "); clones {
		return rest == "SOURCE" || strings.HasPrefix(rest, "--depth") // of docs/verify.md, and of OSS-Fuzz
	}
	u, err := url.Parse(at)
	if err != nil {
		return false
	}
	host := u.Hostname()
	if host == "github.com" && strings.HasPrefix(u.Path, "/floodwall/") {
		return strings.HasPrefix(u.Path, "/floodwall/floodwall") // docs/verify.md says that nobody may be there yet
	}
	if a, err := netip.ParseAddr(host); err == nil {
		documentation := []string{"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "127.0.0.0/8"}
		return slices.ContainsFunc(documentation, func(p string) bool { return netip.MustParsePrefix(p).Contains(a) })
	}
	return slices.Contains(public, host) || strings.HasSuffix(host, ".example") || host == "floodwall" || host == "localhost"
}

// TestSecurityText reads .well-known/security.txt as RFC 9116, section 2, has it.
func TestSecurityText(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(top, ".well-known/security.txt"))
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, ": ")
		if line != "" && line[0] != '#' && !ok {
			t.Errorf("not a field: %q", line)
		}
		fields[name] = append(fields[name], value)
	}
	if len(fields["Expires"]) != 1 || len(fields["Preferred-Languages"]) > 1 {
		t.Errorf("fields that must be there once: %v", fields)
	} else if _, err := time.Parse(time.RFC3339, fields["Expires"][0]); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"Contact", "Policy"} {
		if len(fields[name]) == 0 {
			t.Errorf("no field %s", name)
		}
		for _, value := range fields[name] {
			if u, err := url.Parse(value); err != nil || u.Scheme != "https" && u.Scheme != "mailto" {
				t.Errorf("%s: %q is no address: %v", name, value, err)
			}
		}
	}
}
