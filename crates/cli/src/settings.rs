//! `bruckner settings`: shows every setting with its value and the source of the value.

use std::fmt::Write as _;

use anyhow::Result;
use bruckner_config::{ShownSetting, show_settings};
use clap::Args;
use serde_json::json;

use crate::columns::{self, words};
use crate::{Answer, print};

/// Show every setting with its value and source, as a program started here would find them
///
/// Later sources override earlier ones: the built-in default, [default] in /etc/bruckner.conf, the user's file (~/.config/bruckner.conf,
/// or the file named by BRUCKNER_CONFIG), the environment, [fixed] in /etc/bruckner.conf. Exit status 1: a setting is invalid.
#[derive(Args)]
pub(crate) struct SettingsHere {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl SettingsHere {
    pub(crate) fn run(&self) -> Result<Answer> {
        let (settings, complaints) = show_settings();
        print(&if self.json { in_json(&settings, &complaints) } else { table(&settings, &complaints) })?;
        Ok(if complaints.is_empty() { Answer::Success } else { Answer::Failure })
    }
}

fn in_json(settings: &[ShownSetting], complaints: &[String]) -> String {
    let shown = |setting: &ShownSetting| {
        json!({
            "name": setting.name,
            "value": setting.value,
            "source": setting.source,
            "replaces": setting.replaces,
            "about": setting.about,
        })
    };
    let all: Vec<_> = settings.iter().map(shown).collect();
    format!("{:#}\n", json!({ "settings": all, "wrong": complaints }))
}

fn table(settings: &[ShownSetting], complaints: &[String]) -> String {
    let mut rows = Vec::new();
    for setting in settings {
        let shown = if setting.value.is_empty() { "-" } else { &setting.value };
        rows.push(vec![setting.name.to_owned(), shown.to_owned(), setting.source.to_string()]);
        for (other, source) in setting.replaces.iter().rev() {
            rows.push(vec![String::new(), format!("overrides {other}"), source.to_string()]);
        }
    }
    let mut text = columns::table(&[words("setting"), words("value"), words("source")], &rows);
    for complaint in complaints {
        let _ = writeln!(text, "problem: {complaint}");
    }
    text
}
