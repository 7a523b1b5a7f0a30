// SPDX-License-Identifier: Apache-2.0

//go:build release

package release

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// version is the version of the release that the test makes.
const version = "v99.0.0"

// shop is the place where the test makes releases: a clone of this commit with a tag, and signing keys outside of the clone.
type shop struct {
	t     *testing.T
	dir   string // has the keys, and the clone
	tree  string // the clone
	files string // the release
	apt   string // the repository
	env   []string
}

// prepare is a script that makes the keys, the clone, and the commit and the tag of a release. $1 is the repository, $2 the version.
const prepare = `
mkdir -p -m 700 gpg foreign
minisign -G -W -p floodwall.pub -s minisign.key >/dev/null
minisign -G -W -p foreign.pub -s foreign.key >/dev/null
gpg --batch --quiet --passphrase '' --quick-generate-key 'Floodwall test' ed25519 sign 2y
GNUPGHOME=$PWD/foreign gpg --batch --quiet --passphrase '' --quick-generate-key 'Somebody else' ed25519 sign 2y
git clone --quiet --no-hardlinks "$1" tree
cd tree
git config user.name test
git config user.email test@localhost
cp ../floodwall.pub packaging/keys/
gpg --armor --export >packaging/keys/floodwall-archive-keyring.asc
sed -i "0,/^## Unreleased/s//## Unreleased\n\n## $2\n\n- What this release brings.\n/" CHANGELOG.md
git add .
git commit --quiet --message "release: $2"
git config user.signingkey "$(gpg --list-secret-keys --with-colons | awk -F: '$1 == "fpr" { print $10; exit }')"
git tag --sign --message "$2" "$2"`

// newShop makes a shop in the directory FLOODWALL_TEST_RELEASE, which later runs use again. If the variable is not set, it uses a temporary directory.
func newShop(t *testing.T) *shop {
	testutil.RequireRoot(t)
	dir := os.Getenv("FLOODWALL_TEST_RELEASE")
	if dir == "" {
		dir = t.TempDir()
		os.Chmod(filepath.Dir(dir), 0o755) // apt reads files as the user _apt
	}
	s := &shop{t: t, dir: dir, tree: filepath.Join(dir, "tree")}
	s.files, s.apt = filepath.Join(s.tree, "build/release", version), filepath.Join(s.tree, "build/release/apt")
	s.env = append(os.Environ(), "GNUPGHOME="+filepath.Join(dir, "gpg"), "FLOODWALL_RELEASE_KEY="+filepath.Join(dir, "minisign.key"))
	if _, err := os.Stat(s.tree); err != nil {
		s.must(dir, prepare, testutil.Top(t), version)
	}
	s.env = append(s.env, "FLOODWALL_REPOSITORY_KEY="+s.fingerprint("gpg"))
	t.Cleanup(func() {
		for _, home := range []string{"gpg", "foreign"} {
			exec.Command("gpgconf", "--homedir", filepath.Join(dir, home), "--kill", "all").Run()
		}
	})
	return s
}

// with returns a copy of the shop for a subtest, with more environment variables.
func (s *shop) with(t *testing.T, env ...string) *shop {
	c := *s
	c.t, c.env = t, append(append([]string(nil), s.env...), env...)
	return &c
}

func (s *shop) fingerprint(home string) string {
	s.t.Helper()
	list := s.must(s.dir, `gpg --homedir "$1" --list-keys --with-colons`, filepath.Join(s.dir, home))
	m := regexp.MustCompile(`(?m)^fpr:+([0-9A-F]+):`).FindStringSubmatch(list)
	if m == nil {
		s.t.Fatalf("no key in %s:\n%s", home, list)
	}
	return m[1]
}

// bash returns the command that runs a script in a directory.
func (s *shop) bash(dir, script string, args ...string) *exec.Cmd {
	cmd := exec.Command("bash", append([]string{"-euo", "pipefail", "-c", script, "-"}, args...)...)
	cmd.Dir, cmd.Env = dir, s.env
	return cmd
}

// must runs a script, and returns what it prints.
func (s *shop) must(dir, script string, args ...string) string {
	s.t.Helper()
	out, err := s.bash(dir, script, args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// refuses checks that a script fails and prints the reason why.
func (s *shop) refuses(dir, script, why string) {
	s.t.Helper()
	out, err := s.bash(dir, script).CombinedOutput()
	if err == nil || !strings.Contains(string(out), why) {
		s.t.Errorf("%s: %v, want %q in\n%s", script, err, why, out)
	}
}

// TestRelease makes a release, checks it as users do, installs from its repository, and builds it again.
func TestRelease(t *testing.T) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT) // a background shell ignores SIGINT, which the programs that the test starts would inherit
	s := newShop(t)
	if _, err := os.Stat(s.files); err != nil {
		t.Run("refused", func(t *testing.T) { refused(s.with(t)) })
		t.Run("interrupted", func(t *testing.T) { interrupted(s.with(t)) })
		t.Log(s.must(s.tree, "make -s release VERSION="+version+" 2>&1 | tail -2"))
	}
	t.Run("page", func(t *testing.T) { page(s.with(t)) })
	t.Run("changed", func(t *testing.T) { changed(s.with(t)) })
	t.Run("attested", func(t *testing.T) { attested(s.with(t)) })
	t.Run("repository", func(t *testing.T) { repository(s.with(t)) })
	for _, debian := range []string{"bookworm", "trixie"} {
		t.Run(debian, func(t *testing.T) { hosts(s.with(t), testutil.Debian(t, "host", debian)) })
	}
	t.Run("again", func(t *testing.T) { again(s.with(t)) })
}

// refused checks that scripts/release refuses what must not become a release. It must print the reason, and create no file.
func refused(s *shop) {
	const release = "scripts/release " + version
	s.refuses(s.tree, "scripts/release latest", "name a tag such as v1.2.3")
	s.refuses(s.tree, "scripts/release v98.0.0", "there is no tag v98.0.0")
	s.refuses(s.tree, "git tag v98.0.0 HEAD^; trap 'git tag --delete v98.0.0' EXIT; scripts/release v98.0.0", "is of another commit")
	s.refuses(s.tree, "git tag v98.0.0; trap 'git tag --delete v98.0.0' EXIT; scripts/release v98.0.0", "no section of the version")
	s.refuses(s.tree, "echo >>README.md; trap 'git checkout README.md' EXIT; "+release, "the tree is not clean")
	s.refuses(s.tree, "echo >new; trap 'rm new' EXIT; "+release, "the tree is not clean")
	s.refuses(s.tree, "unset FLOODWALL_RELEASE_KEY; "+release, "name the file of minisign's secret key")
	s.refuses(s.tree, "unset FLOODWALL_REPOSITORY_KEY; "+release, "name the fingerprint of the repository's key")
	s.refuses(s.tree, "mkdir -p build; cp $FLOODWALL_RELEASE_KEY build/k; trap 'rm build/k' EXIT; FLOODWALL_RELEASE_KEY=build/k "+release, "is in the tree")
	s.refuses(s.tree, "mkdir -m 700 -p build/g; trap 'rm -r build/g' EXIT; GNUPGHOME=build/g "+release, "GNUPGHOME is in the tree")
	s.refuses(s.tree, "signed=$(git rev-parse "+version+"); git tag --force "+version+" HEAD; trap 'git update-ref refs/tags/"+version+" $signed' EXIT; "+release,
		"has no signature")
	foreign := s.with(s.t, "FLOODWALL_REPOSITORY_KEY="+s.fingerprint("foreign"))
	foreign.refuses(s.tree, release, "is not in packaging/keys/floodwall-archive-keyring.asc")
	if left, _ := filepath.Glob(filepath.Join(s.tree, "build/release/*")); len(left) > 0 {
		s.t.Errorf("refused, and left %s", left)
	}
}

// interrupted interrupts scripts/release as Ctrl-C does. No file of the release may be left.
func interrupted(s *shop) {
	cmd := s.bash(s.tree, "exec scripts/release "+version)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	making := func() bool {
		found, _ := filepath.Glob(filepath.Join(s.tree, "build/release/.making.*/floodwall/Makefile"))
		return len(found) > 0
	}
	if !testutil.Eventually(time.Minute, making) {
		s.t.Error("it does not begin")
	}
	syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
	if err := cmd.Wait(); err == nil {
		s.t.Error("it goes on")
	}
	entries, err := os.ReadDir(filepath.Join(s.tree, "build/release"))
	if err != nil || len(entries) > 0 {
		s.t.Errorf("left: %v, %v", entries, err)
	}
}

// block returns the code block of docs/verify.md that has this name after its language, with the version of this release.
func (s *shop) block(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.tree, "docs/verify.md"))
	if err != nil {
		s.t.Fatal(err)
	}
	m := regexp.MustCompile("(?ms)^```[a-z]+ " + regexp.QuoteMeta(name) + "\n(.*?)^```$").FindSubmatch(text)
	if m == nil {
		s.t.Fatalf("docs/verify.md has no block %s", name)
	}
	return strings.NewReplacer("VERSION=VERSION", "VERSION="+version, "VERSION", version).Replace(string(m[1]))
}

// download makes a directory with the files that a user downloads: the files of the release, and the public keys.
func (s *shop) download() string {
	dir := s.t.TempDir()
	s.must(s.files, `cp -- * ../apt/floodwall-archive-keyring.asc "$1" && cp ../../../packaging/keys/floodwall.pub "$1"`, dir)
	return dir
}

// page runs the commands of docs/verify.md and checks their output.
func page(s *shop) {
	dir := s.download()
	for name, want := range map[string]string{
		"fingerprint": "Floodwall test",
		"files":       "floodwall-" + version + "-linux-arm64.tar.gz: OK",
		"provenance":  "floodwall_99.0.0-1_arm64.deb: OK",
		"bill":        "pkg:golang/github.com/cilium/ebpf@",
	} {
		if out := s.must(dir, s.block(name)); !strings.Contains(out, want) {
			s.t.Errorf("%s: no %q in\n%s", name, want, out)
		}
	}
	notes, err := os.ReadFile(filepath.Join(dir, "NOTES.md"))
	if err != nil || !strings.HasPrefix(string(notes), "- What this release brings.\n\n") {
		s.t.Errorf("notes: %v\n%s", err, notes)
	}
}

// changed checks that minisign refuses each file after a change of one bit, and a file that a foreign key has signed.
func changed(s *shop) {
	dir := s.download()
	files, err := filepath.Glob(filepath.Join(dir, "*.minisig"))
	if err != nil || len(files) < 20 {
		s.t.Fatalf("signatures: %v, %v", files, err)
	}
	const verify = `minisign -Vm "$1" -p floodwall.pub`
	for _, signature := range files {
		file := strings.TrimSuffix(signature, ".minisig")
		s.must(dir, verify, file)
		content, err := os.ReadFile(file)
		if err != nil {
			s.t.Fatal(err)
		}
		content[len(content)/2] ^= 1
		if err := os.WriteFile(file, content, 0o644); err != nil {
			s.t.Fatal(err)
		}
		if out, err := s.bash(dir, verify, file).CombinedOutput(); err == nil || !bytes.Contains(out, []byte("Signature verification failed")) {
			s.t.Errorf("%s is changed: %v\n%s", file, err, out)
		}
	}
	s.must(dir, `minisign -S -s "$1" -m NOTES.md`, filepath.Join(s.dir, "foreign.key"))
	s.refuses(dir, "minisign -Vm NOTES.md -p floodwall.pub", "key id")
}

// again builds the release a second time, as docs/verify.md says: in another directory, with another home, umask, time and time zone, and with an empty
// cache. All files must have the same bytes. The package lists of a repository with these packages must be the same, too.
func again(s *shop) {
	dir := s.t.TempDir()
	cache, err := exec.Command(filepath.Join(s.tree, "scripts/go"), "env", "GOMODCACHE", "GOENV", "GOVERSION").Output()
	if err != nil {
		s.t.Fatal(err)
	}
	have := strings.Fields(string(cache))
	o := s.with(s.t, "HOME="+filepath.Join(dir, "home"), "GOCACHE="+filepath.Join(dir, "cache"), "GOMODCACHE="+have[0], "GOENV="+have[1],
		"TZ=Asia/Tokyo", "GOFLAGS=-p=3", "GOAMD64=v3")
	script := strings.NewReplacer("git clone SOURCE floodwall", "git clone --quiet "+s.tree+" floodwall", "GOTOOLCHAIN=go1.26.8", "GOTOOLCHAIN="+have[2],
		"/path/to/SHA256SUMS", filepath.Join(s.files, "SHA256SUMS")).Replace(s.block("again"))
	o.must(dir, "umask 077; mkdir home; exec faketime -f +40d bash -euo pipefail -c \"$1\"", script)
	o.must(filepath.Join(dir, "floodwall"), `scripts/repository "$1" build/rebuild/*/*.deb`, filepath.Join(dir, "apt"))
	s.must(s.apt, `for f in dists/stable/main/binary-*/Packages{,.xz}; do cmp "$f" "$1/$f"; done`, filepath.Join(dir, "apt"))
}
