// SPDX-License-Identifier: Apache-2.0

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

// mostWhy is the largest number of characters of an unknown error that Why returns.
const mostWhy = 200

// Why returns the reason why a request failed. It omits the method and the URL that net/http adds, because the URL may contain a key. For errors
// about certificates it uses texts of its own, because those of crypto/x509 repeat names from a certificate that has not been verified.
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

// certificate returns the reason why a server's certificate is rejected. It returns "" for other errors.
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

// Status returns an HTTP status code with its standard text. It does not use the text that the server has sent.
func Status(code int) string { return strings.TrimSpace(fmt.Sprint(code, " ", http.StatusText(code))) }
