package importer

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
)

// readNftSource reads a ruleset of nft, as JSON or as text.
func readNftSource(ctx context.Context, rs *ruleset, rep *report, src Source) error {
	if bytes.HasPrefix(bytes.TrimSpace(src.Data), []byte("{")) {
		return readNft(rs, rep, src.Name, src.Data, nil)
	}
	text := string(src.Data)
	data, err := listAsJSON(ctx, src.Name, text)
	if err != nil {
		return err
	}
	return readNft(rs, rep, src.Name, data, scanNft(text))
}

// Devices that are tested by number (iif) must exist when a ruleset is loaded; tested by name (iifname) they need not,
// and the policy knows no difference.
var byNumber = regexp.MustCompile(`(^|[^.\w]\s*)\b(iif|oif)(\s+(?:!=\s*|==\s*)?["{])`)

// listAsJSON has nft load a text and list what it made as JSON, in a network namespace that ends with the process: the
// rules never touch the machine's own. Without root, it does so in a user namespace of its own.
func listAsJSON(ctx context.Context, name, text string) ([]byte, error) {
	if _, err := exec.LookPath("nft"); err != nil {
		return nil, &InputError{name, 0, "a ruleset as text is read by nft itself, which is not installed",
			"install nftables, or give the output of `nft -j list ruleset`"}
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", "nft -f - && nft -j list ruleset")
	cmd.Stdin = strings.NewReader(byNumber.ReplaceAllString(text, "${1}${2}name${3}"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if id := os.Geteuid(); id != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	// The kernel kills it with the thread that started it (prctl(2), PR_SET_PDEATHSIG), which another goroutine could take and
	// end.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	data, err := cmd.Output()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err == nil:
		return data, nil
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return nil, &InputError{name, 0, "a network namespace to load the ruleset in: " + err.Error(),
			"run it as root, or give the output of `nft -j list ruleset`"}
	}
	return nil, nftError(name, stderr.String())
}

var nftMessage = regexp.MustCompile(`^[^:]*:(\d+):[-\d]+: Error: (.*)$`)

// nftError is the first thing that nft says is wrong.
func nftError(name, stderr string) error {
	e := &InputError{File: name, Msg: "nft cannot load it: " + shorten(stderr)}
	for line := range strings.SplitSeq(stderr, "\n") {
		if m := nftMessage.FindStringSubmatch(line); m != nil {
			n, _ := number(m[1], 1<<31)
			e.Line, e.Msg = int(n), "nft: "+m[2]
			break
		}
	}
	if strings.Contains(stderr, "xtables") {
		e.Remedy = "rules that iptables made are in the output of iptables-save: import that"
	}
	return e
}
