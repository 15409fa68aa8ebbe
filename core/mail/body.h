#pragma once

#include <string>

#include "core/mail/summary.h"
#include "core/mail/texts.h"

namespace scriptorium::mail {

struct MailBody {
  std::string subject;  // fixed words and numbers: nothing that a job's owner wrote
  std::string text;     // lines of at most 72 columns, besides a longer address of a page
  std::string html;     // says the same; one page without images, scripts and anything external
};

// What a mail refers to besides the jobs. As the options of [report] and [report.mail].
struct MailLinks {
  std::string page_url;     // a page of the site about this user's jobs, http(s); "" = none
  std::string unsubscribe;  // the address of a person; "" = none
};

// What the mail about `summary` says. Every text in it that a job's owner may have written is made
// printable, cut, and escaped in the HTML. A directive or job id that could not be copied into a
// job script or a shell as it is, is left out. Pure. Threads: any.
MailBody body_of(const Summary& summary, const Texts& texts, const MailLinks& links);

}  // namespace scriptorium::mail
