import { Monitor, Moon, Sun } from 'lucide-react';
import { useId, useState } from 'react';
import { t } from '../app/i18n.ts';
import { currentTheme, setTheme, type Theme } from '../app/theme.ts';

const THEMES = [
  ['light', 'Light', Sun],
  ['dark', 'Dark', Moon],
  ['system', 'System', Monitor],
] as const;

/** Light, dark, or as the system says. */
export function ThemePicker() {
  const [theme, choose] = useState<Theme>(currentTheme);
  const name = useId();
  return (
    <fieldset className="themes">
      <legend className="visually-hidden">{t('Theme')}</legend>
      {THEMES.map(([id, label, Icon]) => (
        <label key={id} title={t(label)}>
          <input
            type="radio"
            name={name}
            checked={theme === id}
            onChange={() => {
              setTheme(id);
              choose(id);
            }}
          />
          <Icon size={15} aria-hidden="true" />
          <span className="visually-hidden">{t(label)}</span>
        </label>
      ))}
    </fieldset>
  );
}
