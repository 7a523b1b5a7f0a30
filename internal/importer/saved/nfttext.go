package saved

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// ReadNft reads a ruleset of nft, as JSON or as text.
func ReadNft(ctx context.Context, rs *Ruleset, rep *Report, src Source) error {
	if bytes.HasPrefix(bytes.TrimSpace(src.Data), []byte("{")) {
		return readJSON(rs, rep, src.Name, src.Data, nil)
	}
	text := string(src.Data)
	data, err := listAsJSON(ctx, src.Name, text)
	if err != nil {
		return err
	}
	return readJSON(rs, rep, src.Name, data, scanNft(text))
}

// Devices that are tested by number (iif) must exist when a ruleset is loaded; tested by name (iifname) they need not,
// and the policy knows no difference.
var byNumber = wording.Regexp(`(^|[^.\w]\s*)\b(iif|oif)(\s+(?:!=\s*|==\s*)?["{])`)

// nobody is the user that owns what is in the user namespace where nft runs (Debian's, and the kernel's overflowuid).
const nobody = 65534

// nftTime is how long nft may take to load a text.
const nftTime = 2 * time.Minute

// listAsJSON has nft load a text and list what it made as JSON, in a network namespace that ends with the process. The
// text is somebody else's, so nft runs in a user namespace, too: it may change that network namespace and nothing of the
// host, nor read what only root can.
func listAsJSON(ctx context.Context, name, text string) ([]byte, error) {
	if _, err := exec.LookPath("nft"); err != nil {
		return nil, &InputError{File: name, Line: 0, Msg: "a ruleset as text is read by nft itself, which is not installed",
			Remedy: "install nftables, or give the output of `nft -j list ruleset`"}
	}
	ctx, cancel := context.WithTimeout(ctx, nftTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", "nft -f - && nft -j list ruleset")
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(byNumber().ReplaceAllString(text, "${1}${2}name${3}"))
	cmd.SysProcAttr = confined()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	// The kernel kills it with the thread that started it (prctl(2), PR_SET_PDEATHSIG), which another goroutine could take and
	// end.
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
	return nil, nftError(name, stderr.String())
}

// confined is a process in user and network namespaces of its own, in which it is root; outside it is nobody.
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

var nftMessage = wording.Regexp(`^[^:]*:(\d+):[-\d]+: Error: (.*)$`)

// nftError is the first thing that nft says is wrong.
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
