package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// mostWhy is how many characters Why has at most of an error for which it has no words of its own.
const mostWhy = 200

// Why says why a request has no answer, without the method and the URL, which net/http writes before it: the URL may have a key. Errors about
// certificates have words of our own, as those of crypto/x509 repeat names of a certificate that nobody has verified.
func Why(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "it took too long"
	}
	if why := certificate(err); why != "" {
		return why
	}
	if of := (*url.Error)(nil); errors.As(err, &of) {
		err = of.Err
	}
	return fmt.Sprintf("%.*s", mostWhy, wording.Plain(err.Error()))
}

// certificate says why the certificate of a server is refused, "" when it is not.
func certificate(err error) string {
	var (
		name    x509.HostnameError
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		other   *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &name):
		return "the certificate of the server is not for the name " + wording.Quote(name.Host)
	case errors.As(err, &unknown):
		return "the certificate of the server is signed by an authority that this host does not know"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate of the server, or of its authority, has expired or is not valid yet by the clock of this host"
	case errors.As(err, &invalid):
		return "the certificate of the server, or of its authority, is not valid for this server"
	case errors.As(err, &other):
		return "the certificate of the server cannot be verified"
	}
	return ""
}

// Status is a status of HTTP with the text of its standard, and not the server's.
func Status(code int) string { return strings.TrimSpace(fmt.Sprint(code, " ", http.StatusText(code))) }
