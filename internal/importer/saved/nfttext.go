// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// ReadNft reads a ruleset of nft, as JSON or as text.
func ReadNft(ctx context.Context, rs *Ruleset, rep *Report, src Source) error {
	if bytes.HasPrefix(bytes.TrimSpace(src.Data), []byte("{")) {
		return readJSON(rs, rep, src.Name, src.Data, nil, nil)
	}
	text := string(src.Data)
	p := prepare(text)
	data, err := listAsJSON(ctx, src.Name, p)
	if err != nil {
		return err
	}
	data, listed, _ := bytes.Cut(data, []byte{0})
	if err := readJSON(rs, rep, src.Name, data, scanNft(text), scanListing(string(listed))); err != nil {
		return err
	}
	for _, f := range p.flowtables {
		rep.Lose(Place{File: src.Name, Line: f.line, Text: "flowtable " + f.name}, "%s", PastRules)
	}
	return p.complete(rs, src.Name)
}

// complete returns an error if an object that the text declares is not in the ruleset that nft listed.
func (p *prepared) complete(rs *Ruleset, name string) error {
	if p.removes {
		return nil // an object that is removed later need not be listed
	}
	for _, o := range p.objects {
		found := slices.ContainsFunc(rs.Tables, func(t *Table) bool {
			return t.Kind == o.table && (o.kind == "table" || t.Chains[o.name] != nil || t.Sets[o.name])
		})
		if !found {
			what := o.kind + " " + strings.TrimSpace(o.table+" "+o.name)
			return &InputError{File: name, Line: o.line, Msg: fmt.Sprintf("%s is in the file, and nft does not list it once it has loaded the file", what),
				Remedy: "load the rules on a host, and import what `nft -j list ruleset` prints there"}
		}
	}
	return nil
}

// nobody is the user ID, outside of the user namespace, of the process that runs nft as root in that namespace (Debian's nobody, and the kernel's
// overflowuid).
const nobody = 65534

// nftTime is the longest time that nft may take to load a text.
const nftTime = 2 * time.Minute

// loadScript creates the devices that chains name, if the tools and the kernel can. It then loads a text, and lists the ruleset as JSON and as
// text.
const loadScript = `for d; do { ip link add "$d" type dummy || ip link add "$d" type veth; } >/dev/null 2>&1; done
nft -f - && nft -j list ruleset && printf '\000' && nft list ruleset`

// listAsJSON makes nft load a text and list the resulting ruleset, in a network namespace that ends with the process. It returns the ruleset as
// JSON and, after a zero byte, as text. The text comes from someone else, so nft also runs in a user namespace: it can change that network
// namespace, but nothing of the host, and cannot read files that only root can read. In a user namespace, the kernel does not allow large socket
// buffers, so sets of thousands of elements do not fit into a message to it. For such a text, root runs nft as nobody, with the capability to
// change a network namespace and no other.
func listAsJSON(ctx context.Context, name string, p prepared) ([]byte, error) {
	if _, err := exec.LookPath("nft"); err != nil {
		return nil, &InputError{File: name, Line: 0, Msg: "a ruleset as text is read by nft itself, which is not installed",
			Remedy: "install nftables, or give the output of `nft -j list ruleset`"}
	}
	data, err := p.list(ctx, name, confined())
	var input *InputError
	if errors.As(err, &input) && strings.Contains(input.Msg, tooLong) {
		if os.Geteuid() == 0 {
			if data, again := p.list(ctx, name, privileged()); again == nil {
				return data, nil
			}
		}
		input.Remedy = "its sets are too large to be loaded in a user namespace: import as root, or give the output of `nft -j list ruleset`"
	}
	return data, err
}

// tooLong is the kernel's error message for a netlink message that is larger than the socket's buffer (EMSGSIZE).
const tooLong = "Message too long"

// list loads the text and lists the ruleset, in a process with the given attributes.
func (p *prepared) list(ctx context.Context, name string, attributes *syscall.SysProcAttr) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, nftTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", loadScript, "sh"}, p.devices...)...)
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(p.text)
	cmd.SysProcAttr = attributes
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	// The kernel kills the process when the thread that started it ends (prctl(2), PR_SET_PDEATHSIG). Another goroutine could otherwise take
	// over that thread and end it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	data, err := cmd.Output()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, &InputError{File: name, Line: 0, Msg: fmt.Sprintf("nft did not load it in %v", nftTime), Remedy: "give the output of `nft -j list ruleset`"}
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err == nil:
		return data, nil
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return nil, &InputError{File: name, Line: 0, Msg: "user and network namespaces to load the ruleset in: " + err.Error(),
			Remedy: "allow user namespaces (sysctl user.max_user_namespaces), or give the output of `nft -j list ruleset`"}
	}
	if stderr.Len() == 0 { // nft ended without a message
		return nil, &InputError{File: name, Line: 0, Msg: "nft, or the shell that calls it, ended without a word: " + exit.Error(),
			Remedy: "import what `nft -j list ruleset` prints on another host"}
	}
	return nil, nftError(name, stderr.String())
}

// confined returns attributes for a process in user and network namespaces of its own. It is root in them; outside, it is nobody if this process
// is root, and otherwise this process's user.
func confined() *syscall.SysProcAttr {
	uid, gid := os.Geteuid(), os.Getegid()
	if uid == 0 {
		uid, gid = nobody, nobody
	}
	return &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWUSER, Pdeathsig: syscall.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}},
		Credential:  &syscall.Credential{NoSetGroups: true},
	}
}

// privileged returns attributes for a process in a network namespace of its own. It is nobody, with the capability to change the namespace.
func privileged() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL, AmbientCaps: []uintptr{unix.CAP_NET_ADMIN},
		Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
	}
}

var nftMessage = wording.Regexp(`^[^:]*:(\d+):[-\d]+: Error: (.*)$`)

// nftError returns the first error that nft reports, with its line.
func nftError(name, stderr string) error {
	e := &InputError{File: name, Msg: "nft cannot load it: " + Shorten(stderr)}
	for line := range strings.SplitSeq(stderr, "\n") {
		if m := nftMessage().FindStringSubmatch(line); m != nil {
			n, _ := Number(m[1], 1<<31)
			e.Line, e.Msg = int(n), "nft: "+m[2]
			break
		}
	}
	if strings.Contains(stderr, "xtables") {
		e.Remedy = "rules that iptables made are in the output of iptables-save: import that"
	}
	return e
}
